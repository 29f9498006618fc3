"""The field types of the wire models: ProtoJSON's spellings in, one canonical form out, the limits of security.md.

Used by the other modules of this room; ``parse_timestamp`` and ``format_timestamp`` by all who read or print times.
"""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum
from typing import Annotated, Final, TypeVar

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, StringConstraints, ValidationInfo

from app.protocol.models.base import Role
from app.protocol.states import TaskState

MAX_ID_CHARACTERS = 256
MAX_PARTS = 256
MAX_METADATA_BYTES = 64 * 1024

QUERY: Final = "query"
"""Validation context of a request made of query parameters: booleans are the words ``true`` and ``false``."""

_MAX_INT32 = 2**31 - 1
_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,20}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,2})?", re.ASCII)
_URL_SAFE_BASE64 = str.maketrans("-_", "+/")

_EnumT = TypeVar("_EnumT", bound=IntEnum)


def parse_timestamp(value: object) -> datetime:
    """RFC 3339 text (or an aware datetime) in UTC; finer than microseconds is cut off. ValueError for anything else."""
    if isinstance(value, str):
        if not _RFC3339.fullmatch(value):
            raise ValueError("must be an RFC 3339 timestamp such as 2026-01-31T12:00:00.000Z")
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError("must be an RFC 3339 timestamp")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("must lie between the years 1 and 9999 in UTC") from error


def format_timestamp(value: datetime) -> str:
    """UTC with ``Z`` and milliseconds (A2A v1.0 §5.6.1); ``value`` is aware."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _integral(value: object) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value):
            return int(value)
        if _NUMBER.fullmatch(value):
            value = float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("must be an integer")


def _optional_integral(value: object) -> int | None:
    return None if value is None else _integral(value)


def _boolean(value: object, info: ValidationInfo) -> bool:
    if isinstance(value, bool):
        return value
    if info.context == QUERY and value in ("true", "false"):
        return value == "true"
    raise ValueError("must be true or false")


def _flag(value: object, info: ValidationInfo) -> bool:
    return value is not None and _boolean(value, info)


def _optional_flag(value: object, info: ValidationInfo) -> bool | None:
    return None if value is None else _boolean(value, info)


def _null_is(empty: Callable[[], object]) -> BeforeValidator:
    """null = absent, for fields without presence."""

    def replace(value: object) -> object:
        return empty() if value is None else value

    return BeforeValidator(replace)


def _enum(kind: type[_EnumT], by_wire: dict[str, _EnumT], *, required: bool) -> BeforeValidator:
    """A full name or a number; the zero value is "not given", also when null or absent say so."""

    def member(value: object) -> _EnumT:
        found = by_wire.get(value) if isinstance(value, str) else None
        if found is None:
            try:
                found = kind(0 if value is None else _integral(value))
            except ValueError:
                raise ValueError(f"must be one of {', '.join(by_wire)}") from None
        if required and not found:
            raise ValueError(f"is required: one of {', '.join(list(by_wire)[1:])}")
        return found

    return BeforeValidator(member)


def _wire_name(value: TaskState | Role) -> str:
    return value.wire


def _canonical_base64(value: str) -> str:
    body = value.rstrip("=").translate(_URL_SAFE_BASE64)
    try:
        return base64.b64encode(base64.b64decode(body + "=" * (-len(body) % 4), validate=True)).decode()
    except ValueError as error:
        raise ValueError("must be base64 (standard or URL-safe)") from error


def _bounded(value: dict[str, object]) -> dict[str, object]:
    try:
        size = len(orjson.dumps(value))
    except TypeError as error:
        raise ValueError("must be JSON") from error
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"must have at most {MAX_METADATA_BYTES} bytes, has {size}")
    return value


_TASK_STATES = {state.wire: state for state in TaskState}
_ROLES = {role.wire: role for role in Role}

# In Annotated the validator that stands last runs first.
Text = Annotated[str, _null_is(str)]
RequiredText = Annotated[str, StringConstraints(min_length=1)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_CHARACTERS)]
OptionalId = Annotated[str, StringConstraints(max_length=MAX_ID_CHARACTERS), _null_is(str)]
Texts = Annotated[list[str], _null_is(list)]
Ids = Annotated[list[Id], _null_is(list)]
NULL_IS_EMPTY_LIST = _null_is(list)
NULL_IS_EMPTY_MAP = _null_is(dict)
Flag = Annotated[bool, BeforeValidator(_flag)]
OptionalFlag = Annotated[bool | None, BeforeValidator(_optional_flag)]
Int32 = Annotated[int, Field(ge=-(2**31), le=_MAX_INT32), BeforeValidator(_integral), _null_is(int)]
HistoryLength = Annotated[int | None, Field(ge=0, le=_MAX_INT32), BeforeValidator(_optional_integral)]
PageSize = Annotated[int | None, Field(ge=1, le=100), BeforeValidator(_optional_integral)]
Base64 = Annotated[str, AfterValidator(_canonical_base64)]
Struct = Annotated[dict[str, object], AfterValidator(_bounded)]
Timestamp = Annotated[datetime, BeforeValidator(parse_timestamp), PlainSerializer(format_timestamp)]
RequiredState = Annotated[TaskState, _enum(TaskState, _TASK_STATES, required=True), PlainSerializer(_wire_name)]
OptionalState = Annotated[TaskState, _enum(TaskState, _TASK_STATES, required=False), PlainSerializer(_wire_name)]
RequiredRole = Annotated[Role, _enum(Role, _ROLES, required=True), PlainSerializer(_wire_name)]
