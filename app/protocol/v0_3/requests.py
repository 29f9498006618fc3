"""Requests of A2A 0.3 as requests of 1.0, which ``protocol.models`` then validates.

Each function takes the params of a JSON-RPC method, or the fields of an HTTP+JSON request under the same names. What
is of a wrong type is passed on for the models to refuse, unless their text would name a field that 0.3 does not have.
"""

import base64
from typing import Any, cast

from app.errors import InvalidParams
from app.protocol.v0_3.spelling import ROLES, VALUE_PART, Json, Spelling

_ROLES = {short: full for full, short in ROLES.items()}


def send_message(params: Json, spelling: Spelling) -> Json:
    """``configuration.blocking`` that is not given means true on JSON-RPC; ProtoJSON leaves false out."""
    message = _pick(params, "message", "request")
    given: object = params.get("configuration")
    if given is None and spelling is not Spelling.JSON:
        given = {}
    request: Json = {"message": _message(message, spelling), "metadata": params.get("metadata")}
    if given is not None:
        request["configuration"] = _configuration(given, spelling)
    return request


def get_task(params: Json, _spelling: Spelling) -> Json:
    history = _history_length(_pick(params, "historyLength", "history_length"))
    return {"id": params.get("id"), "historyLength": history}


def task_id(params: Json, _spelling: Spelling) -> Json:
    """Of tasks/cancel and tasks/resubscribe."""
    return {"id": params.get("id"), "metadata": params.get("metadata")}


def set_config(params: Json, _spelling: Spelling) -> Json:
    """ProtoJSON may have the config in a ``config`` object, with its id beside it, and the task in the path only."""
    holder = _object(params["config"], "config") if "config" in params else params
    given = _pick(holder, "pushNotificationConfig", "push_notification_config")
    if given is None:
        raise _invalid("pushNotificationConfig", "is required")
    config = _config(_object(given, "pushNotificationConfig"), "pushNotificationConfig")
    config["id"] = config["id"] or _pick(params, "configId", "config_id")
    return {**config, "taskId": _required(params, "taskId", "task_id")}


def list_configs(params: Json, _spelling: Spelling) -> Json:
    """0.3 has no pages: as many as one page can hold."""
    return {"taskId": _required(params, "id"), "pageSize": 100}


def config_id(params: Json, _spelling: Spelling) -> Json:
    """Of tasks/pushNotificationConfig/get and /delete."""
    config = _required(params, "pushNotificationConfigId", "push_notification_config_id")
    return {"taskId": _required(params, "id"), "id": config}


def nothing(_params: Json, _spelling: Spelling) -> Json:
    """Of agent/getAuthenticatedExtendedCard."""
    return {}


def names_config(params: Json) -> bool:
    """Whether a tasks/pushNotificationConfig/get says which config; without an id it means the task's first."""
    return _pick(params, "pushNotificationConfigId", "push_notification_config_id") is not None


def _message(message: object, spelling: Spelling) -> object:
    if not isinstance(message, dict):
        return message
    given = cast("Json", message)
    role = given.get("role")
    parts = _pick(given, "parts", "content") if spelling is not Spelling.JSON else given.get("parts")
    if isinstance(parts, list):
        parts = [_part(part, f"message.parts[{at}]", spelling) for at, part in enumerate(cast("list[object]", parts))]
    return {**given, "role": _ROLES.get(role, role) if isinstance(role, str) else role, "parts": parts}


def _part(part: object, at: str, spelling: Spelling) -> object:
    if not isinstance(part, dict):
        return part
    given = cast("Json", part)
    kind = given.get("kind")
    proto = kind is None and spelling is not Spelling.JSON
    if kind is None:
        kind = next((name for name in ("text", "file", "data") if given.get(name) is not None), None)
    metadata = given.get("metadata")
    if kind == "text":
        return {"text": _required(given, "text", at=at), "metadata": metadata}
    if kind == "file":
        return {**_file(_object(given.get("file"), f"{at}.file"), f"{at}.file", spelling, proto), "metadata": metadata}
    if kind == "data":
        data = _object(given.get("data"), f"{at}.data")
        return _data_part(_object(data.get("data"), f"{at}.data.data") if proto else data, metadata)
    raise _invalid(f"{at}.kind", "must be text, file or data")


def _file(file: Json, at: str, spelling: Spelling, proto: bool) -> Json:
    names = ("fileWithBytes", "file_with_bytes") if proto else ("bytes",)
    raw, url = _pick(file, *names), _pick(file, *(("fileWithUri", "file_with_uri") if proto else ("uri",)))
    if (raw is None) == (url is None):
        raise _invalid(at, "must have exactly one of bytes and uri")
    content: Json = {"url": url} if raw is None else {"raw": raw}
    if proto and spelling is Spelling.PROTO_TWICE and isinstance(raw, str):
        content["raw"] = _unwrapped(raw)
    return {
        **content,
        "filename": _text(file, at, "name"),
        "mediaType": _text(file, at, "mimeType", "mime_type"),
    }


def _unwrapped(raw: str) -> str:
    """The base64 text inside the base64; what is not that is content that was encoded once."""
    try:
        inner = base64.b64decode(raw, validate=True)
        base64.b64decode(inner, validate=True)
        return inner.decode("ascii")
    except ValueError:
        return raw


def _data_part(data: Json, metadata: object) -> Json:
    if isinstance(metadata, dict) and cast("Json", metadata).get(VALUE_PART) is True and "value" in data:
        others = {key: value for key, value in cast("Json", metadata).items() if key != VALUE_PART}
        return {"data": data["value"], "metadata": others or None}
    return {"data": data, "metadata": metadata}


def _configuration(given: object, spelling: Spelling) -> object:
    if not isinstance(given, dict):
        return given
    configuration = cast("Json", given)
    blocking = configuration.get("blocking")
    if blocking is None:
        blocking = spelling is Spelling.JSON
    if not isinstance(blocking, bool):
        raise _invalid("configuration.blocking", "must be true or false")
    names = ("pushNotificationConfig", "push_notification_config", "pushNotification", "push_notification")
    push, at = _pick(configuration, *names), "configuration.pushNotificationConfig"
    return {
        "acceptedOutputModes": _pick(configuration, "acceptedOutputModes", "accepted_output_modes"),
        "historyLength": _history_length(_pick(configuration, "historyLength", "history_length")),
        "returnImmediately": not blocking,
        "taskPushNotificationConfig": None if push is None else _config(_object(push, at), at),
    }


def _history_length(value: object) -> object:
    """0 is unlimited in 0.3, as in its SDKs: ProtoJSON does not tell 0 from absent."""
    return None if not isinstance(value, bool) and value in (0, "0") else value


def _config(config: Json, at: str) -> Json:
    """Of the schemes that 0.3 lets a receiver name, the first is used; 1.0 has one."""
    return {
        "id": _text(config, at, "id"),
        "url": _required(config, "url", at=at),
        "token": config.get("token"),
        "authentication": _authentication(config.get("authentication"), f"{at}.authentication"),
    }


def _authentication(given: object, at: str) -> Json | None:
    if given is None:
        return None
    authentication = _object(given, at)
    schemes = authentication.get("schemes")
    if not isinstance(schemes, list) or not schemes:
        raise _invalid(f"{at}.schemes", "must name a scheme")
    return {"scheme": schemes[0], "credentials": authentication.get("credentials")}


def _pick(holder: Json, *names: str) -> Any:
    """The first member that is there and not null."""
    return next((holder[name] for name in names if holder.get(name) is not None), None)


def _required(holder: Json, *names: str, at: str = "") -> object:
    value = _pick(holder, *names)
    if value is None:
        raise _invalid(f"{at}.{names[0]}" if at else names[0], "is required")
    return value


def _text(holder: Json, at: str, *names: str) -> str:
    value = _pick(holder, *names)
    if value is not None and not isinstance(value, str):
        raise _invalid(f"{at}.{names[0]}", "must be a string")
    return value or ""


def _object(value: object, at: str) -> Json:
    if not isinstance(value, dict):
        raise _invalid(at, "must be an object")
    return cast("Json", value)


def _invalid(field: str, text: str) -> InvalidParams:
    return InvalidParams(f"{field}: {text}", violations=[(field, text)])
