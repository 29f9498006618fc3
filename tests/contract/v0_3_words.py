"""A2A 0.3's words for 1.0's, by hand and apart from the broker's: what its two doors send, and what they answer.

Called by ``v0_3_doors``. ``proto`` chooses the HTTP+JSON door's ProtoJSON; the other is JSON-RPC's JSON. What has no
1.0 form (a test that sends nonsense) is passed on as it is.
"""

from typing import Any

Json = dict[str, Any]

STATES = ("submitted", "working", "completed", "failed", "canceled", "input-required", "rejected", "auth-required")


def request(operation: str, params: Json, *, proto: bool) -> Json:
    """1.0's request as 0.3's: params, or the fields of path, query and body."""
    match operation:
        case "SendMessage" | "SendStreamingMessage":
            return _sending(params, proto)
        case "CreateTaskPushNotificationConfig":
            config = _config(params)
            if proto:
                return {"id": params.get("taskId"), "config": {"pushNotificationConfig": config}}
            return {"taskId": params.get("taskId"), "pushNotificationConfig": config}
        case "GetTaskPushNotificationConfig" | "DeleteTaskPushNotificationConfig":
            return {"id": params.get("taskId"), "pushNotificationConfigId": params.get("id")}
        case "ListTaskPushNotificationConfigs":
            return {"id": params.get("taskId")}
        case _:
            return params


def answer(operation: str, result: Any, *, proto: bool) -> Json:
    """0.3's result as 1.0's answer."""
    match operation:
        case "SendMessage":
            return item(result, proto=proto)
        case "GetTask" | "CancelTask":
            return _task(result, proto)
        case "CreateTaskPushNotificationConfig" | "GetTaskPushNotificationConfig":
            return _of_config(result, proto)
        case "ListTaskPushNotificationConfigs":
            return {"configs": [_of_config(one, proto) for one in (result["configs"] if proto else result)]}
        case "DeleteTaskPushNotificationConfig":
            assert result == ({} if proto else None)
            return {}
        case _:
            return result


def item(event: Json, *, proto: bool) -> Json:
    """0.3's stream event, or what message/send answers, as a StreamResponse; ``final`` is left as it is."""
    if proto:
        ((name, body),) = event.items()
    else:
        kinds = {"status-update": "statusUpdate", "artifact-update": "artifactUpdate"}
        name, body = kinds.get(event["kind"], event["kind"]), event
    body = {key: value for key, value in body.items() if key != "kind"}
    if name == "task":
        return {name: _task(body, proto)}
    if name == "message":
        return {name: _of_message(body, proto)}
    if name == "statusUpdate":
        return {name: body | {"status": _status(body["status"], proto)}}
    return {name: body | {"artifact": _artifact(body["artifact"], proto)}}


def _sending(params: Json, proto: bool) -> Json:
    """Blocking is always said: the doors differ in what its absence means."""
    sent = {key: value for key, value in params.items() if key not in ("message", "configuration")}
    if "message" in params:
        sent["message"] = (
            _message(params["message"], proto) if isinstance(params["message"], dict) else params["message"]
        )
    configuration = params.get("configuration", {})
    if isinstance(configuration, dict):
        configuration = dict(configuration)
        at_once = configuration.pop("returnImmediately", False)
        configuration["blocking"] = not at_once if isinstance(at_once, bool) else at_once
        if push := configuration.pop("taskPushNotificationConfig", None):
            configuration["pushNotification" if proto else "pushNotificationConfig"] = _config(push)
    return sent | {"configuration": configuration}


def _message(message: Json, proto: bool) -> Json:
    sent: Json = message if proto else {"kind": "message"} | message
    if not proto and isinstance(role := message.get("role"), str):
        sent["role"] = role.removeprefix("ROLE_").lower()
    if isinstance(message.get("parts"), list):
        parts = [_part(part, proto) if isinstance(part, dict) else part for part in message["parts"]]
        sent = {key: value for key, value in sent.items() if key != "parts"} | {"content" if proto else "parts": parts}
    return sent


def _part(part: Json, proto: bool) -> Json:
    others = {"metadata": part["metadata"]} if "metadata" in part else {}
    if "text" in part:
        return ({} if proto else {"kind": "text"}) | {"text": part["text"]} | others
    if "data" in part:
        data = part["data"]
        if not isinstance(data, dict):
            data, others = {"value": data}, {"metadata": others.get("metadata", {}) | {"data_part_compat": True}}
        return ({"data": {"data": data}} if proto else {"kind": "data", "data": data}) | others
    names = {"filename": "name", "mediaType": "mimeType"}
    names |= {"raw": "fileWithBytes", "url": "fileWithUri"} if proto else {"raw": "bytes", "url": "uri"}
    file = {names[key]: value for key, value in part.items() if key in names}
    return ({} if proto else {"kind": "file"}) | {"file": file} | others


def _config(config: Json) -> Json:
    sent = {key: value for key, value in config.items() if key in ("id", "url", "token")}
    if isinstance(authentication := config.get("authentication"), dict):
        schemes = [authentication["scheme"]] if "scheme" in authentication else []
        others = {key: value for key, value in authentication.items() if key != "scheme"}
        sent["authentication"] = {"schemes": schemes} | others
    return sent


def _task(task: Json, proto: bool) -> Json:
    assert proto or task.get("kind", "task") == "task"
    read = {key: value for key, value in task.items() if key != "kind"}
    read["status"] = _status(task["status"], proto)
    if "history" in task:
        read["history"] = [_of_message(message, proto) for message in task["history"]]
    if "artifacts" in task:
        read["artifacts"] = [_artifact(artifact, proto) for artifact in task["artifacts"]]
    return read


def _status(status: Json, proto: bool) -> Json:
    name = status["state"]
    if proto:
        assert name != "TASK_STATE_CANCELED", "0.3's a2a.proto writes it with two l"
        name = name.replace("CANCELLED", "CANCELED")
    else:
        assert name in STATES, name
        name = "TASK_STATE_" + name.replace("-", "_").upper()
    message = {"message": _of_message(status["message"], proto)} if "message" in status else {}
    return status | {"state": name} | message


def _of_message(message: Json, proto: bool) -> Json:
    assert proto or message.get("kind", "message") == "message"
    read = {key: value for key, value in message.items() if key not in ("kind", "content", "parts")}
    read["parts"] = [_of_part(part, proto) for part in message["content" if proto else "parts"]]
    return read if proto else read | {"role": {"user": "ROLE_USER", "agent": "ROLE_AGENT"}[message["role"]]}


def _artifact(artifact: Json, proto: bool) -> Json:
    return artifact | {"parts": [_of_part(part, proto) for part in artifact["parts"]]}


def _of_part(part: Json, proto: bool) -> Json:
    assert proto == ("kind" not in part), part
    others = {"metadata": dict(part["metadata"])} if "metadata" in part else {}
    if "text" in part:
        return {"text": part["text"]} | others
    if "data" in part:
        data = part["data"]["data"] if proto else part["data"]
        if others.get("metadata", {}).pop("data_part_compat", False):
            data, others = data["value"], others if others["metadata"] else {}
        return {"data": data} | others
    names = {"name": "filename", "mimeType": "mediaType", "bytes": "raw", "uri": "url"}
    names |= {"fileWithBytes": "raw", "fileWithUri": "url"}
    return {names[key]: value for key, value in part["file"].items()} | others


def _of_config(config: Json, proto: bool) -> Json:
    read = dict(config["pushNotificationConfig"])
    if proto:
        _, read["taskId"], _, id_in_name = config["name"].split("/")
        assert id_in_name == read["id"]
    else:
        read["taskId"] = config["taskId"]
    if authentication := read.get("authentication"):
        (scheme,) = authentication["schemes"]
        others = {key: value for key, value in authentication.items() if key != "schemes"}
        read["authentication"] = {"scheme": scheme} | others
    return read
