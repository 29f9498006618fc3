"""1.0's answers and stream events as 0.3's, in either spelling. What goes in is canonical 1.0 JSON that we made."""

import base64
from typing import Any

from app.errors import TaskNotFound
from app.protocol.card_v0_3 import with_v0_3
from app.protocol.states import TaskState
from app.protocol.v0_3.spelling import PROTO_CANCELED, ROLES, STATES, VALUE_PART, Json, Spelling


def event(item: Json, spelling: Spelling, *, ends: bool = False) -> Json:
    """A message/send's answer, or one item of a stream. ``ends``: the stream ends with it, which a status update says
    as ``final``."""
    ((name, body),) = item.items()
    shown = {"task": task, "message": message, "artifactUpdate": _artifact_update}.get(name, _status_update)(
        body, spelling
    )
    if name == "statusUpdate":
        shown["final"] = ends or TaskState.parse(body["status"]["state"]).is_terminal
    return shown if spelling is Spelling.JSON else {name: shown}


def task(body: Json, spelling: Spelling) -> Json:
    shown: Json = {
        "id": body["id"],
        "contextId": body.get("contextId", ""),
        "status": _status(body["status"], spelling),
    }
    if artifacts := body.get("artifacts"):
        shown["artifacts"] = [_artifact(artifact, spelling) for artifact in artifacts]
    if history := body.get("history"):
        shown["history"] = [message(said, spelling) for said in history]
    return _kind("task", {**shown, **_given(body, "metadata")}, spelling)


def message(body: Json, spelling: Spelling) -> Json:
    """0.3's ``a2a.proto`` has no referenceTaskIds."""
    parts = [_part(part, spelling) for part in body["parts"]]
    shown = _given(body, "messageId", "contextId", "taskId", "metadata", "extensions")
    if spelling is Spelling.JSON:
        shown |= {"role": ROLES[body["role"]], "parts": parts, **_given(body, "referenceTaskIds")}
    else:
        shown |= {"role": body["role"], "content": parts}
    return _kind("message", shown, spelling)


def config(body: Json, spelling: Spelling) -> Json:
    shown: Json = {**_given(body, "id", "token"), "url": body["url"]}
    if authentication := body.get("authentication"):
        shown["authentication"] = {"schemes": [authentication["scheme"]], **_given(authentication, "credentials")}
    if spelling is Spelling.JSON:
        return {"taskId": body["taskId"], "pushNotificationConfig": shown}
    name = f"tasks/{body['taskId']}/pushNotificationConfigs/{body['id']}"
    return {"name": name, "pushNotificationConfig": shown}


def configs(body: Json, spelling: Spelling) -> Json | list[Json]:
    shown = [config(one, spelling) for one in body.get("configs", ())]
    return shown if spelling is Spelling.JSON else {"configs": shown}


def first_config(body: Json, spelling: Spelling) -> Json:
    """Raises TaskNotFound when there is none, as for a config that is asked for by an unknown id."""
    if not body.get("configs"):
        raise TaskNotFound("The task has no push notification config")
    return config(body["configs"][0], spelling)


def card(body: Json, _spelling: Spelling) -> Json:
    """The extended card as the public one is: a document that clients of both versions and bindings read."""
    return with_v0_3(body)


def nothing(_body: Json, spelling: Spelling) -> Json | None:
    """Of a deletion."""
    return None if spelling is Spelling.JSON else {}


def _status_update(body: Json, spelling: Spelling) -> Json:
    shown = {**_given(body, "taskId", "contextId", "metadata"), "status": _status(body["status"], spelling)}
    return _kind("status-update", shown, spelling)


def _artifact_update(body: Json, spelling: Spelling) -> Json:
    flags = {"append": body.get("append", False), "lastChunk": body.get("lastChunk", False)}
    artifact = _artifact(body["artifact"], spelling)
    shown = {**_given(body, "taskId", "contextId", "metadata"), "artifact": artifact, **flags}
    return _kind("artifact-update", shown, spelling)


def _status(body: Json, spelling: Spelling) -> Json:
    state = body["state"]
    if spelling is Spelling.JSON:
        state = STATES.get(state, "unknown")
    elif state == TaskState.CANCELED.wire:
        state = PROTO_CANCELED
    shown = {"state": state, **_given(body, "timestamp")}
    if "message" in body:
        shown["message"] = message(body["message"], spelling)
    return shown


def _artifact(body: Json, spelling: Spelling) -> Json:
    return {**body, "parts": [_part(part, spelling) for part in body["parts"]]}


def _part(part: Json, spelling: Spelling) -> Json:
    metadata = _given(part, "metadata")
    if "text" in part:
        return {**_kind("text", {"text": part["text"]}, spelling), **metadata}
    if "data" in part:
        return _data_part(part["data"], metadata, spelling)
    file = {new: part[old] for old, new in (("filename", "name"), ("mediaType", "mimeType")) if part.get(old)}
    if spelling is Spelling.JSON:
        file |= {"bytes": part["raw"]} if "raw" in part else {"uri": part["url"]}
    elif "raw" in part:
        twice = spelling is Spelling.PROTO_TWICE
        file["fileWithBytes"] = base64.b64encode(part["raw"].encode()).decode() if twice else part["raw"]
    else:
        file["fileWithUri"] = part["url"]
    return {**_kind("file", {"file": file}, spelling), **metadata}


def _data_part(data: Any, metadata: Json, spelling: Spelling) -> Json:
    if not isinstance(data, dict):
        data = {"value": data}
        metadata = {"metadata": {**metadata.get("metadata", {}), VALUE_PART: True}}
    return {**_kind("data", {"data": data if spelling is Spelling.JSON else {"data": data}}, spelling), **metadata}


def _kind(kind: str, shown: Json, spelling: Spelling) -> Json:
    """JSON objects name their kind; ProtoJSON must not: its readers refuse unknown fields."""
    return {"kind": kind, **shown} if spelling is Spelling.JSON else shown


def _given(holder: Json, *names: str) -> Json:
    return {name: holder[name] for name in names if name in holder}
