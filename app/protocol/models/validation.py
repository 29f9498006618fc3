"""The two ways between plain JSON values and wire models: ``parse`` (with clear violations) and ``dump``.

Called by the doors for requests, by the native API for worker events, and by the push side for remote agents' answers.
"""

from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from app.errors import InvalidParams, WaystationError
from app.protocol.models.base import WireModel
from app.protocol.models.scalars import QUERY

MAX_VIOLATIONS = 20
MAP_FIELDS: Final = frozenset({"schemes", "scopes", "securitySchemes"})
"""Fields whose keys are data, not field names."""

_M = TypeVar("_M", bound=BaseModel)

_TEXTS = {
    "missing": "is required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "too_long": "must have at most {max_length} elements, has {actual_length}",
    "too_short": "must have at least {min_length} element",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must not be empty",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}


def parse(model: type[_M], value: object, *, at: str = "", error: type[WaystationError] = InvalidParams) -> _M:
    """``value`` (decoded JSON) as an instance of ``model``.

    Raises ``error`` with at most 20 violations, (field path in camelCase like ``message.parts[0].text``, description);
    ``at`` is the path of ``value`` itself when it is part of a larger body. The first one is also the error's message.
    """
    try:
        return model.model_validate(value)
    except ValidationError as failure:
        raise _invalid(failure, at, error) from None


def parse_query(model: type[_M], parameters: dict[str, str]) -> _M:
    """Parameters of a query and a path as an instance of ``model``.

    Numbers and enums are read from their text, booleans are ``true`` or ``false``. Raises InvalidParams as ``parse``
    does.
    """
    try:
        return model.model_validate(parameters, context=QUERY)
    except ValidationError as failure:
        raise _invalid(failure, "", InvalidParams) from None


def dump(model: WireModel) -> dict[str, object]:
    """Canonical ProtoJSON as plain JSON values: camelCase, full enum names, UTC times, nothing unset or default.

    Equal messages give equal values whatever their spelling was on input, so hashes may be taken of it. REQUIRED
    lists of cards and all keys of ListTasksResponse are printed even when they are empty (a2a-server.md).
    """
    return model.model_dump(by_alias=True, exclude_defaults=True)


def _invalid(failure: ValidationError, at: str, error: type[WaystationError]) -> WaystationError:
    details = failure.errors(include_url=False)[:MAX_VIOLATIONS]
    violations = [(_path(at, detail["loc"]), _describe(detail)) for detail in details]
    path, description = violations[0]
    return error(f"{path or 'value'}: {description}", violations=violations)


def _path(at: str, location: tuple[int | str, ...]) -> str:
    path, in_map = at, False
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
            continue
        name = step if in_map else to_camel(step)
        path += f".{name}" if path else name
        in_map = not in_map and name in MAP_FIELDS
    return path


def _describe(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    if isinstance(cause := context.get("error"), ValueError):
        return str(cause)
    if detail["input"] is None:
        return "is required"
    text = _TEXTS.get(detail["type"])
    return text.format_map(context) if text else detail["msg"]
