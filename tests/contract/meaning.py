"""What an answer means, in words: equal on every door, whatever its shape there. Called by the scenario tests.

Ids and times differ from run to run, so the words have states, texts and names only.
"""

import base64
import json
from typing import Any

from tests.contract.doors import Json, state


def of_answer(operation: str, answer: Json) -> list[str]:
    """A unary operation's answer."""
    match operation:
        case "SendMessage":
            return [of_item(answer)]
        case "GetTask" | "CancelTask":
            return [of_task(answer)]
        case "ListTasks":
            more = ["more"] if answer["nextPageToken"] else []
            return [f"{len(answer['tasks'])} of {answer['totalSize']}", *map(of_task, answer["tasks"]), *more]
        case "GetExtendedAgentCard":
            return [f"card {answer['name']}"]
        case "DeleteTaskPushNotificationConfig":
            return ["done"]
        case "ListTaskPushNotificationConfigs":
            return list(map(_of_config, answer.get("configs", [])))
        case _:
            return [_of_config(answer)]


def of_item(item: Json) -> str:
    """One StreamResponse, or the answer to SendMessage."""
    if "task" in item:
        return of_task(item["task"])
    if "message" in item:
        return f"message {of_parts(item['message'])}"
    if "statusUpdate" in item:
        return f"{state(item['statusUpdate'])}{_said(item['statusUpdate'])}"
    update = item["artifactUpdate"]
    sign = "+=" if update.get("append") else "="
    return f"{update['artifact']['artifactId']} {sign} {of_parts(update['artifact'])}{_last(update)}"


def of_task(task: Json) -> str:
    """``task COMPLETED: done; asked go; stock = A:3``."""
    history = [f"{_role(message)} {of_parts(message)}" for message in task.get("history", [])]
    artifacts = [f"{artifact['artifactId']} = {of_parts(artifact)}" for artifact in task.get("artifacts", [])]
    return "; ".join([f"task {state(task)}{_said(task)}", *history, *artifacts])


def of_parts(holder: Json) -> str:
    """The contents of a message or an artifact, one after the other."""
    sign = "" if all("text" in part and "mediaType" not in part for part in holder["parts"]) else " "
    return sign.join(map(_of_part, holder["parts"]))


def _of_part(part: Json) -> str:
    named = "".join(f"({part[name]})" for name in ("mediaType", "filename") if part.get(name))
    if "text" in part:
        return part["text"] + named
    if "data" in part:
        return json.dumps(_whole(part["data"]), sort_keys=True) + named
    if "url" in part:
        return f"<{part['url']}>{named}"
    return f"{base64.b64decode(part['raw'])!r}{named}"


def _whole(value: Any) -> Any:
    """1.0 is 1: protobuf's JSON values know no integers."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _said(holder: Json) -> str:
    message = holder["status"].get("message")
    return f": {of_parts(message)}" if message else ""


def _role(message: Json) -> str:
    return {"ROLE_USER": "asked", "ROLE_AGENT": "said"}[message["role"]]


def _last(update: Json) -> str:
    return " (last)" if update.get("lastChunk") else ""


def _of_config(config: Json) -> str:
    scheme = config.get("authentication", {}).get("scheme", "")
    return f"config {config['url']}{f' {scheme}' if scheme else ''}"
