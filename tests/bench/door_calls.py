"""The calls whose doors are compared, and what is answered to them: the same on both sides. Standard library only, for
the SDK's side runs in an environment of its own. Used by ``doors.py`` and ``door_side.py``.
"""

import json
from dataclasses import dataclass, field
from typing import Any

AGENT = "bench"
TASK_ID = "01900000-0000-7000-8000-000000000000"
CONTEXT_ID = "01900000-0000-7000-8000-00000000000c"
SENTENCE = "A sentence of the length that sentences of agents have. "


def _message(number: int, role: str) -> dict[str, Any]:
    return {
        "messageId": f"message-{number}",
        "contextId": CONTEXT_ID,
        "taskId": TASK_ID,
        "role": role,
        "parts": [{"text": SENTENCE * 2}],
    }


def _status(state: str, **message: Any) -> dict[str, Any]:
    return {"state": f"TASK_STATE_{state}", "timestamp": "2026-01-01T00:00:00.123Z", **message}


SUBMITTED: dict[str, Any] = {
    "id": TASK_ID, "contextId": CONTEXT_ID, "status": _status("SUBMITTED"), "history": [_message(1, "ROLE_USER")],
}  # fmt: skip
COMPLETED: dict[str, Any] = {
    "id": TASK_ID,
    "contextId": CONTEXT_ID,
    "status": _status("COMPLETED", message=_message(4, "ROLE_AGENT")),
    "artifacts": [{"artifactId": "report", "name": "report", "parts": [{"text": SENTENCE * 4}, {"data": {"rows": 3}}]}],
    "history": [_message(1, "ROLE_USER"), _message(2, "ROLE_AGENT"), _message(3, "ROLE_USER")],
}
LISTED: dict[str, Any] = {"tasks": [SUBMITTED] * 10, "nextPageToken": "next", "pageSize": 10, "totalSize": 25}
ANSWERS: dict[str, dict[str, Any]] = {"GetTask": COMPLETED, "SendMessage": {"task": SUBMITTED}, "ListTasks": LISTED}

_SEND: dict[str, Any] = {
    "message": {"messageId": "message-1", "role": "ROLE_USER", "parts": [{"text": SENTENCE * 2}]},
    "configuration": {"returnImmediately": True, "acceptedOutputModes": ["text/plain"]},
}
_SEND_0_3: dict[str, Any] = {
    "message": {
        "kind": "message", "messageId": "message-1", "role": "user", "parts": [{"kind": "text", "text": SENTENCE * 2}],
    },
    "configuration": {"blocking": False, "acceptedOutputModes": ["text/plain"]},
}  # fmt: skip


@dataclass(frozen=True)
class DoorCall:
    """One HTTP call. ``door`` is ``rpc`` or ``rest``: the path is below the side's base for it. ``counted``: the goal
    is about it; the others are shown for information."""

    door: str
    method: str = "POST"
    path: str = ""
    query: str = ""
    body: dict[str, Any] | None = None
    version: str = "1.0"
    counted: bool = True
    envelope: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "envelope", self.door == "rpc")

    def content(self) -> bytes:
        return b"" if self.body is None else json.dumps(self.body, separators=(",", ":")).encode()


def _rpc(method: str, params: dict[str, Any], **more: Any) -> DoorCall:
    return DoorCall("rpc", body={"jsonrpc": "2.0", "id": "1", "method": method, "params": params}, **more)


CALLS: dict[str, DoorCall] = {
    "GetTask, JSON-RPC": _rpc("GetTask", {"id": TASK_ID, "historyLength": 10}),
    "GetTask, REST": DoorCall("rest", "GET", f"/tasks/{TASK_ID}", "historyLength=10"),
    "SendMessage, JSON-RPC": _rpc("SendMessage", _SEND),
    "SendMessage, REST": DoorCall("rest", "POST", "/message:send", body=_SEND),
    "ListTasks, JSON-RPC": _rpc("ListTasks", {"pageSize": 10, "historyLength": 1}),
    "ListTasks, REST": DoorCall("rest", "GET", "/tasks", "pageSize=10&historyLength=1"),
    "tasks/get, JSON-RPC 0.3": _rpc("tasks/get", {"id": TASK_ID, "historyLength": 10}, version="", counted=False),
    "message/send, JSON-RPC 0.3": _rpc("message/send", _SEND_0_3, version="", counted=False),
}
