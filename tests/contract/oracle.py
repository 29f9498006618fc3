"""The official protobuf types as the oracle: their descriptors, what they make of JSON, and JSON drawn from them.

Called by the tests that hold models, operations and answers against ``a2a.types``.
"""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from a2a.types import a2a_pb2
from google.api import field_behavior_pb2
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message as ProtoMessage
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from app.protocol.models.base import OneofModel, WireModel
from app.protocol.models.card import RegisteredCard

MESSAGES: dict[str, Descriptor] = dict(a2a_pb2.DESCRIPTOR.message_types_by_name)
METHODS: dict[str, MethodDescriptor] = dict(a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].methods_by_name)
ANSWERS = {name: method.output_type.name for name, method in METHODS.items()}
"""Operation -> the type of its answer, or of a stream's items."""
STRUCT, VALUE, TIMESTAMP = "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.Timestamp"
# Narrower than the proto's type: (least, greatest) by A2A's text.
RANGES = {"history_length": (0, 2**31 - 1), "ListTasksRequest.page_size": (1, 100)}


def all_models(base: type[WireModel] = WireModel) -> dict[str, type[WireModel]]:
    found: dict[str, type[WireModel]] = {}
    for model in base.__subclasses__():
        found |= {model.__name__: model} | all_models(model)
    return found


MODELS = {name: model for name, model in all_models().items() if model not in (OneofModel, RegisteredCard)}


def is_required(field: FieldDescriptor) -> bool:
    return field_behavior_pb2.REQUIRED in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def oneofs(descriptor: Descriptor) -> list[tuple[str, ...]]:
    """The real oneofs; ``optional`` fields have synthetic ones of one field."""
    return [tuple(field.name for field in oneof.fields) for oneof in descriptor.oneofs if len(oneof.fields) > 1]


def minimal(descriptor: Descriptor) -> dict[str, Any]:
    """The least JSON object that has every REQUIRED field and one of each oneof."""
    chosen = [field for field in descriptor.fields if is_required(field)]
    chosen += [descriptor.fields_by_name[oneof[0]] for oneof in oneofs(descriptor)]
    return {field.json_name: _minimal_value(field) for field in chosen}


def _minimal_value(field: FieldDescriptor) -> Any:
    if is_map(field):
        return {}
    if field.message_type is not None:
        value: Any = minimal(field.message_type)
    elif field.enum_type is not None:
        value = field.enum_type.values_by_number[1].name
    else:
        value = 1 if field.type == FieldDescriptor.TYPE_INT32 else "x"
    return [value] if field.is_repeated else value


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
SCALAR = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    SCALAR | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=2)
TIME = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)).map(
    lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000, tzinfo=UTC)
)


def _print_time(time: datetime) -> str:
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


class _Writer:
    """Draws one JSON object of a message: canonical (``plain``), or in any spelling that ProtoJSON admits."""

    def __init__(self, draw: st.DrawFn, *, plain: bool) -> None:
        self.draw, self.plain = draw, plain

    def message(self, descriptor: Descriptor) -> dict[str, Any]:
        in_oneof = {name for oneof in oneofs(descriptor) for name in oneof}
        chosen = {self.draw(st.sampled_from(oneof)) for oneof in oneofs(descriptor)}
        result: dict[str, Any] = {}
        for field in descriptor.fields:
            wanted = field.name in chosen if field.name in in_oneof else is_required(field) or self._sometimes()
            if wanted:
                result[self._name(field)] = self._field(descriptor, field)
            elif field.name not in in_oneof and not self.plain and self._sometimes():
                result[self._name(field)] = None
        if not self.plain and self._sometimes():
            result["unknown_field"] = self.draw(JSON)
        return result

    def _sometimes(self) -> bool:
        return self.draw(st.integers(0, 2)) == 0

    def _name(self, field: FieldDescriptor) -> str:
        return field.json_name if self.plain or self.draw(st.booleans()) else field.name

    def _field(self, parent: Descriptor, field: FieldDescriptor) -> Any:
        least = 1 if is_required(field) else 0
        if is_map(field):
            entry = field.message_type.fields_by_name["value"]
            keys = self.draw(st.lists(TEXT, min_size=least, max_size=2, unique=True))
            return {key: self._value(parent, entry) for key in keys}
        if field.is_repeated:
            return [self._value(parent, field) for _ in range(self.draw(st.integers(least, 2)))]
        return self._value(parent, field)

    def _value(self, parent: Descriptor, field: FieldDescriptor) -> Any:
        if field.message_type is not None:
            full_name = field.message_type.full_name
            if full_name == STRUCT:
                return self.draw(OBJECT)
            if full_name == VALUE:
                return self.draw(JSON)
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
        return self.draw(TEXT)

    def _integer(self, parent: Descriptor, field: FieldDescriptor) -> Any:
        least, greatest = RANGES.get(field.name) or RANGES.get(f"{parent.name}.{field.name}") or (-(2**31), 2**31 - 1)
        value = self.draw(st.integers(least, greatest))
        return value if self.plain else self.draw(st.sampled_from([value, float(value), str(value), f"{value}.0"]))

    def _time(self) -> str:
        time = self.draw(TIME)
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
def objects(draw: st.DrawFn, name: str, *, plain: bool) -> dict[str, Any]:
    return _Writer(draw, plain=plain).message(MESSAGES[name])


def as_proto(name: str, value: Any, *, ignore_unknown_fields: bool = True) -> ProtoMessage:
    """The message that the oracle reads. Raises json_format.ParseError."""
    message = message_factory.GetMessageClass(MESSAGES[name])()
    return json_format.ParseDict(value, message, ignore_unknown_fields=ignore_unknown_fields)


QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
