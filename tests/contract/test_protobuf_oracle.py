"""The official protobuf types are the oracle for the wire models: names, shapes and requiredness by a walk over the
descriptors, spellings and values by round trips through ``google.protobuf.json_format``."""

import types
import typing
from typing import Annotated, Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import assume, given
from hypothesis import strategies as st

from app.errors import InvalidParams
from app.protocol.models import dump, messages, parse
from app.protocol.models.base import OneofModel, Role
from app.protocol.models.validation import MAP_FIELDS
from app.protocol.states import TaskState
from tests.contract.oracle import (
    MESSAGES,
    MODELS,
    QUICK,
    STRUCT,
    TIMESTAMP,
    VALUE,
    as_proto,
    is_map,
    is_required,
    minimal,
    objects,
    oneofs,
)  # fmt: skip

# REQUIRED in the proto, but a canonical ProtoJSON printer omits them when they are empty; we always print them.
FORCED_DEFAULTS = {"ListTasksResponse"}


# --- the walk --------------------------------------------------------------------------------------------------------


def _proto_element(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        full_name = field.message_type.full_name
        return {STRUCT: "dict[str, object]", VALUE: "object", TIMESTAMP: "datetime"}.get(
            full_name, field.message_type.name
        )
    if field.enum_type is not None:
        return field.enum_type.name
    return {
        FieldDescriptor.TYPE_STRING: "str",
        FieldDescriptor.TYPE_BYTES: "str",
        FieldDescriptor.TYPE_BOOL: "bool",
        FieldDescriptor.TYPE_INT32: "int",
    }[field.type]


def _proto_shape(field: FieldDescriptor) -> str:
    if is_map(field):
        return f"dict[str, {_proto_element(field.message_type.fields_by_name['value'])}]"
    return f"list[{_proto_element(field)}]" if field.is_repeated else _proto_element(field)


def _model_shape(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _model_shape(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        (inner,) = [arg for arg in typing.get_args(annotation) if arg is not types.NoneType]
        return _model_shape(inner)
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_model_shape, typing.get_args(annotation)))}]"
    return annotation.__name__


def test_the_same_messages() -> None:
    assert set(MODELS) == set(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_the_same_fields(name: str) -> None:
    descriptor, model = MESSAGES[name], MODELS[name]

    proto = {field.name: (field.json_name, _proto_shape(field)) for field in descriptor.fields}
    ours = {key: (info.alias, _model_shape(info.annotation)) for key, info in model.model_fields.items()}

    assert ours == proto


@pytest.mark.parametrize("name", sorted(set(MESSAGES) - FORCED_DEFAULTS))
def test_the_same_requiredness_and_presence(name: str) -> None:
    for field in MESSAGES[name].fields:
        info = MODELS[name].model_fields[field.name]
        assert info.is_required() == is_required(field), field.full_name
        if info.is_required() or field.message_type is MESSAGES["Part"].fields_by_name["data"].message_type:
            continue
        has_presence = not field.is_repeated and field.has_presence
        assert (info.get_default(call_default_factory=True) is None) == has_presence, field.full_name


@pytest.mark.parametrize("name", MESSAGES)
def test_the_same_oneofs(name: str) -> None:
    model = MODELS[name]
    ours = [model.ONEOF] if issubclass(model, OneofModel) else []
    if model is messages.Part:
        ours = [("text", "raw", "url", "data")]
    assert [set(oneof) for oneof in ours] == [set(oneof) for oneof in oneofs(MESSAGES[name])]


def test_the_same_enums() -> None:
    for enum, ours in (("TaskState", TaskState), ("Role", Role)):
        values = {value.name: value.number for value in a2a_pb2.DESCRIPTOR.enum_types_by_name[enum].values}
        assert {member.wire: member.value for member in ours} == values
    assert set(a2a_pb2.DESCRIPTOR.enum_types_by_name) == {"TaskState", "Role"}


def test_map_fields_are_known_to_violation_paths() -> None:
    maps = {field.json_name for message in MESSAGES.values() for field in message.fields if is_map(field)}
    assert maps == MAP_FIELDS


# --- REQUIRED is enforced --------------------------------------------------------------------------------------------


def _missing_values(field: FieldDescriptor) -> list[Any]:
    """The ways to leave a field out: no key, null, and proto3's zero value of a scalar."""
    missing: list[Any] = [..., None]
    if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
        missing.append("")
    if field.enum_type is not None:
        missing += [0, field.enum_type.values_by_number[0].name]
    return missing


REQUIRED = [
    pytest.param(name, field, absent, id=f"{name}.{field.json_name}-{absent!r}")
    for name in sorted(set(MESSAGES) - FORCED_DEFAULTS)
    for field in MESSAGES[name].fields
    if is_required(field)
    for absent in _missing_values(field)
]


@pytest.mark.parametrize(("name", "field", "absent"), REQUIRED)
def test_a_missing_required_field_is_refused(name: str, field: FieldDescriptor, absent: Any) -> None:
    value = minimal(MESSAGES[name])
    assert parse(MODELS[name], value)
    value[field.json_name] = absent
    if absent is ...:
        del value[field.json_name]

    with pytest.raises(InvalidParams) as refused:
        parse(MODELS[name], value)

    assert [path for path, _ in refused.value.violations] == [field.json_name]


# --- round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MESSAGES)
@QUICK
@given(data=st.data())
def test_every_spelling_means_the_same_to_the_oracle(name: str, data: st.DataObject) -> None:
    value = data.draw(objects(name, plain=False))

    ours = dump(parse(MODELS[name], value))

    # Our output is ProtoJSON without unknown fields, and it is the message that the oracle reads from the input.
    assert as_proto(name, ours, ignore_unknown_fields=False) == as_proto(name, value)


@pytest.mark.parametrize("name", MESSAGES)
@QUICK
@given(data=st.data(), snake_case=st.booleans(), numbers=st.booleans())
def test_what_the_oracle_prints_is_read_and_printed_back(
    name: str, data: st.DataObject, snake_case: bool, numbers: bool
) -> None:
    message = as_proto(name, data.draw(objects(name, plain=True)))

    printed = json_format.MessageToDict(message, preserving_proto_field_name=snake_case, use_integers_for_enums=numbers)
    model = parse(MODELS[name], printed)

    assert as_proto(name, dump(model), ignore_unknown_fields=False) == message
    assert parse(MODELS[name], dump(model)) == model


@pytest.mark.parametrize("name", MESSAGES)
@QUICK
@given(data=st.data())
def test_equal_messages_print_equal_json(name: str, data: st.DataObject) -> None:
    spelled = data.draw(objects(name, plain=False))
    canonical = json_format.MessageToDict(as_proto(name, spelled))

    assert dump(parse(MODELS[name], spelled)) == dump(parse(MODELS[name], canonical))


_WRONG = [5, -1, 1.5, True, "", "x", [], [None], ["x"], {}, {"x": 1}, "TASK_STATE_NONE", 99, "2026-13-01T00:00:00Z"]


@pytest.mark.parametrize("name", MESSAGES)
@QUICK
@given(data=st.data())
def test_what_the_oracle_refuses_is_refused(name: str, data: st.DataObject) -> None:
    value = data.draw(objects(name, plain=True))
    target = _somewhere(data.draw, value)
    key = (
        data.draw(st.sampled_from(sorted(target)))
        if target
        else data.draw(st.sampled_from([field.json_name for field in MESSAGES[name].fields]))
    )
    target[key] = data.draw(st.sampled_from(_WRONG))
    try:
        as_proto(name, value, ignore_unknown_fields=False)
    except json_format.ParseError as refused:
        # An unknown key ({"x": 1} in place of a message) is refused by this strict reading only; we ignore it.
        assume("has no field named" not in str(refused))
    else:
        assume(False)

    with pytest.raises(InvalidParams):
        parse(MODELS[name], value)


def _somewhere(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    """One of the objects inside ``value``, or itself."""
    inner = [item for item in value.values() if isinstance(item, dict) and item]
    inner += [item for items in value.values() if isinstance(items, list) for item in items if isinstance(item, dict)]
    if not inner or draw(st.booleans()):
        return value
    return _somewhere(draw, draw(st.sampled_from(inner)))
