"""The official protobuf types are the oracle for the wire models: names, shapes and requiredness by a walk over the
descriptors, spellings and values by round trips through ``google.protobuf.json_format``."""

import types
import typing
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from a2a.types import a2a_pb2
from google.api import field_behavior_pb2
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message as ProtoMessage
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from app.errors import InvalidParams
from app.protocol.models import dump, messages, parse
from app.protocol.models.base import OneofModel, Role, WireModel
from app.protocol.models.card import RegisteredCard
from app.protocol.models.validation import MAP_FIELDS
from app.protocol.states import TaskState

MESSAGES: dict[str, Descriptor] = dict(a2a_pb2.DESCRIPTOR.message_types_by_name)
STRUCT, VALUE, TIMESTAMP = "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.Timestamp"

# REQUIRED in the proto, but a canonical ProtoJSON printer omits them when they are empty; we always print them.
FORCED_DEFAULTS = {"ListTasksResponse"}
# Narrower than the proto's type: (least, greatest) by A2A's text.
RANGES = {"history_length": (0, 2**31 - 1), "ListTasksRequest.page_size": (1, 100)}


def _all_models(base: type[WireModel] = WireModel) -> dict[str, type[WireModel]]:
    found: dict[str, type[WireModel]] = {}
    for model in base.__subclasses__():
        found |= {model.__name__: model} | _all_models(model)
    return found


MODELS = {name: model for name, model in _all_models().items() if model not in (OneofModel, RegisteredCard)}


# --- the walk --------------------------------------------------------------------------------------------------------


def _is_required(field: FieldDescriptor) -> bool:
    return field_behavior_pb2.REQUIRED in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _oneofs(descriptor: Descriptor) -> list[tuple[str, ...]]:
    """The real oneofs; ``optional`` fields have synthetic ones of one field."""
    return [tuple(field.name for field in oneof.fields) for oneof in descriptor.oneofs if len(oneof.fields) > 1]


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
    if _is_map(field):
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
        assert info.is_required() == _is_required(field), field.full_name
        if info.is_required() or field.message_type is MESSAGES["Part"].fields_by_name["data"].message_type:
            continue
        has_presence = not field.is_repeated and field.has_presence
        assert (info.get_default() is None) == has_presence, field.full_name


@pytest.mark.parametrize("name", MESSAGES)
def test_the_same_oneofs(name: str) -> None:
    model = MODELS[name]
    ours = [model.ONEOF] if issubclass(model, OneofModel) else []
    if model is messages.Part:
        ours = [("text", "raw", "url", "data")]
    assert [set(oneof) for oneof in ours] == [set(oneof) for oneof in _oneofs(MESSAGES[name])]


def test_the_same_enums() -> None:
    for enum, ours in (("TaskState", TaskState), ("Role", Role)):
        values = {value.name: value.number for value in a2a_pb2.DESCRIPTOR.enum_types_by_name[enum].values}
        assert {member.wire: member.value for member in ours} == values
    assert set(a2a_pb2.DESCRIPTOR.enum_types_by_name) == {"TaskState", "Role"}


def test_map_fields_are_known_to_violation_paths() -> None:
    maps = {field.json_name for message in MESSAGES.values() for field in message.fields if _is_map(field)}
    assert maps == MAP_FIELDS


# --- REQUIRED is enforced --------------------------------------------------------------------------------------------


def _minimal(descriptor: Descriptor) -> dict[str, Any]:
    """The least JSON object that has every REQUIRED field and one of each oneof."""
    chosen = [field for field in descriptor.fields if _is_required(field)]
    chosen += [descriptor.fields_by_name[oneof[0]] for oneof in _oneofs(descriptor)]
    return {field.json_name: _minimal_value(field) for field in chosen}


def _minimal_value(field: FieldDescriptor) -> Any:
    if _is_map(field):
        return {}
    if field.message_type is not None:
        value: Any = _minimal(field.message_type)
    elif field.enum_type is not None:
        value = field.enum_type.values_by_number[1].name
    else:
        value = 1 if field.type == FieldDescriptor.TYPE_INT32 else "x"
    return [value] if field.is_repeated else value


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
    if _is_required(field)
    for absent in _missing_values(field)
]


@pytest.mark.parametrize(("name", "field", "absent"), REQUIRED)
def test_a_missing_required_field_is_refused(name: str, field: FieldDescriptor, absent: Any) -> None:
    value = _minimal(MESSAGES[name])
    assert parse(MODELS[name], value)
    value[field.json_name] = absent
    if absent is ...:
        del value[field.json_name]

    with pytest.raises(InvalidParams) as refused:
        parse(MODELS[name], value)

    assert [path for path, _ in refused.value.violations] == [field.json_name]


# --- round trips -----------------------------------------------------------------------------------------------------

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
_SCALAR = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    _SCALAR | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_OBJECT = st.dictionaries(_TEXT, _JSON, max_size=2)
_TIME = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)).map(
    lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000, tzinfo=UTC)
)


def _print_time(time: datetime) -> str:
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


class _Writer:
    """Draws one JSON object of a message: canonical (``plain``), or in any spelling that ProtoJSON admits."""

    def __init__(self, draw: st.DrawFn, *, plain: bool) -> None:
        self.draw, self.plain = draw, plain

    def message(self, descriptor: Descriptor) -> dict[str, Any]:
        in_oneof = {name for oneof in _oneofs(descriptor) for name in oneof}
        chosen = {self.draw(st.sampled_from(oneof)) for oneof in _oneofs(descriptor)}
        result: dict[str, Any] = {}
        for field in descriptor.fields:
            wanted = field.name in chosen if field.name in in_oneof else _is_required(field) or self._sometimes()
            if wanted:
                result[self._name(field)] = self._field(descriptor, field)
            elif field.name not in in_oneof and not self.plain and self._sometimes():
                result[self._name(field)] = None
        if not self.plain and self._sometimes():
            result["unknown_field"] = self.draw(_JSON)
        return result

    def _sometimes(self) -> bool:
        return self.draw(st.integers(0, 2)) == 0

    def _name(self, field: FieldDescriptor) -> str:
        return field.json_name if self.plain or self.draw(st.booleans()) else field.name

    def _field(self, parent: Descriptor, field: FieldDescriptor) -> Any:
        least = 1 if _is_required(field) else 0
        if _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            keys = self.draw(st.lists(_TEXT, min_size=least, max_size=2, unique=True))
            return {key: self._value(parent, entry) for key in keys}
        if field.is_repeated:
            return [self._value(parent, field) for _ in range(self.draw(st.integers(least, 2)))]
        return self._value(parent, field)

    def _value(self, parent: Descriptor, field: FieldDescriptor) -> Any:
        if field.message_type is not None:
            full_name = field.message_type.full_name
            if full_name == STRUCT:
                return self.draw(_OBJECT)
            if full_name == VALUE:
                return self.draw(_JSON)
            return self._time() if full_name == TIMESTAMP else self.message(field.message_type)
        if field.enum_type is not None:
            value = self.draw(st.sampled_from(field.enum_type.values[1:]))
            return value.name if self.plain else self.draw(st.sampled_from([value.name, value.number]))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._base64()
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.draw(st.booleans())
        if field.type == FieldDescriptor.TYPE_INT32:
            return self._integer(parent, field)
        return self.draw(_TEXT)

    def _integer(self, parent: Descriptor, field: FieldDescriptor) -> Any:
        least, greatest = RANGES.get(field.name) or RANGES.get(f"{parent.name}.{field.name}") or (-(2**31), 2**31 - 1)
        value = self.draw(st.integers(least, greatest))
        return value if self.plain else self.draw(st.sampled_from([value, float(value), str(value), f"{value}.0"]))

    def _time(self) -> str:
        time = self.draw(_TIME)
        if self.plain:
            return _print_time(time)
        zone = timezone(timedelta(minutes=self.draw(st.integers(-839, 839))))
        spelled = time.astimezone(zone).isoformat()
        return self.draw(st.sampled_from([_print_time(time), spelled, time.isoformat()]))

    def _base64(self) -> str:
        raw = self.draw(st.binary(max_size=8))
        text = json_format.MessageToDict(a2a_pb2.Part(raw=raw))["raw"]
        if self.plain:
            return text
        url_safe = text.replace("+", "-").replace("/", "_")
        return self.draw(st.sampled_from([text, url_safe, url_safe.rstrip("=")]))


@st.composite
def _objects(draw: st.DrawFn, name: str, *, plain: bool) -> dict[str, Any]:
    return _Writer(draw, plain=plain).message(MESSAGES[name])


def _oracle(name: str, value: Any, *, ignore_unknown_fields: bool = True) -> ProtoMessage:
    message = message_factory.GetMessageClass(MESSAGES[name])()
    return json_format.ParseDict(value, message, ignore_unknown_fields=ignore_unknown_fields)


_quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", MESSAGES)
@_quick
@given(data=st.data())
def test_every_spelling_means_the_same_to_the_oracle(name: str, data: st.DataObject) -> None:
    value = data.draw(_objects(name, plain=False))

    ours = dump(parse(MODELS[name], value))

    # Our output is ProtoJSON without unknown fields, and it is the message that the oracle reads from the input.
    assert _oracle(name, ours, ignore_unknown_fields=False) == _oracle(name, value)


@pytest.mark.parametrize("name", MESSAGES)
@_quick
@given(data=st.data(), snake_case=st.booleans(), numbers=st.booleans())
def test_what_the_oracle_prints_is_read_and_printed_back(
    name: str, data: st.DataObject, snake_case: bool, numbers: bool
) -> None:
    message = _oracle(name, data.draw(_objects(name, plain=True)))

    printed = json_format.MessageToDict(message, preserving_proto_field_name=snake_case, use_integers_for_enums=numbers)
    model = parse(MODELS[name], printed)

    assert _oracle(name, dump(model), ignore_unknown_fields=False) == message
    assert parse(MODELS[name], dump(model)) == model


@pytest.mark.parametrize("name", MESSAGES)
@_quick
@given(data=st.data())
def test_equal_messages_print_equal_json(name: str, data: st.DataObject) -> None:
    spelled = data.draw(_objects(name, plain=False))
    canonical = json_format.MessageToDict(_oracle(name, spelled))

    assert dump(parse(MODELS[name], spelled)) == dump(parse(MODELS[name], canonical))


_WRONG = [5, -1, 1.5, True, "", "x", [], [None], ["x"], {}, {"x": 1}, "TASK_STATE_NONE", 99, "2026-13-01T00:00:00Z"]


@pytest.mark.parametrize("name", MESSAGES)
@_quick
@given(data=st.data())
def test_what_the_oracle_refuses_is_refused(name: str, data: st.DataObject) -> None:
    value = data.draw(_objects(name, plain=True))
    target = _somewhere(data.draw, value)
    key = (
        data.draw(st.sampled_from(sorted(target)))
        if target
        else data.draw(st.sampled_from([field.json_name for field in MESSAGES[name].fields]))
    )
    target[key] = data.draw(st.sampled_from(_WRONG))
    try:
        _oracle(name, value, ignore_unknown_fields=False)
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
