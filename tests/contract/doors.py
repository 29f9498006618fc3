"""The two doors as one client: each scenario says what it means once and is tried through both.

Called by the tests of this folder and of tests/integration. Requests and answers are plain JSON; an error of either
door is a DoorError with the same reason.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

import httpx

from tests.support.plain_http import NO_CERTIFICATES

Json = dict[str, Any]

# A2A v1.0.1 §5.4, and the broker's own: reason -> (JSON-RPC code, HTTP status of the REST door, its status name)
ERRORS: dict[str, tuple[int, int, str]] = {
    "TASK_NOT_FOUND": (-32001, 404, "NOT_FOUND"),
    "TASK_NOT_CANCELABLE": (-32002, 400, "FAILED_PRECONDITION"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": (-32003, 400, "FAILED_PRECONDITION"),
    "UNSUPPORTED_OPERATION": (-32004, 400, "FAILED_PRECONDITION"),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 400, "INVALID_ARGUMENT"),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": (-32007, 400, "FAILED_PRECONDITION"),
    "EXTENSION_SUPPORT_REQUIRED": (-32008, 400, "FAILED_PRECONDITION"),
    "VERSION_NOT_SUPPORTED": (-32009, 400, "FAILED_PRECONDITION"),
    "PARSE_ERROR": (-32700, 400, "INVALID_ARGUMENT"),
    "INVALID_PARAMS": (-32602, 400, "INVALID_ARGUMENT"),
    "INVALID_ARGUMENT": (-32602, 400, "INVALID_ARGUMENT"),
    "NOT_SUPPORTED": (-32602, 400, "INVALID_ARGUMENT"),
    "IDEMPOTENCY_CONFLICT": (-32602, 409, "ABORTED"),
    "TASK_BUSY": (-32004, 409, "ABORTED"),
    "NOT_FOUND": (-32001, 404, "NOT_FOUND"),
    "UNAUTHENTICATED": (-32600, 401, "UNAUTHENTICATED"),
    "INSUFFICIENT_SCOPE": (-32600, 403, "PERMISSION_DENIED"),
    "RESOURCE_EXHAUSTED": (-32603, 429, "RESOURCE_EXHAUSTED"),
    "PAYLOAD_TOO_LARGE": (-32602, 413, "RESOURCE_EXHAUSTED"),
    "UNSUPPORTED_MEDIA_TYPE": (-32005, 415, "INVALID_ARGUMENT"),
    "HEADERS_TOO_LARGE": (-32600, 431, "RESOURCE_EXHAUSTED"),
    "UNAVAILABLE": (-32603, 503, "UNAVAILABLE"),
}
HTTP_LEVEL = frozenset({401, 413, 415, 429, 431, 503}) | {403}
"""Statuses that JSON-RPC answers have as well; all its other errors are 200."""
OURS = frozenset(
    {
        "INVALID_ARGUMENT", "NOT_SUPPORTED", "IDEMPOTENCY_CONFLICT", "TASK_BUSY", "NOT_FOUND", "UNAUTHENTICATED",
        "INSUFFICIENT_SCOPE", "RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE",
        "HEADERS_TOO_LARGE", "UNAVAILABLE",
    }
)  # fmt: skip


class DoorError(Exception):
    """An error answer, already checked against the table: reason, code, status and domain belong together."""

    def __init__(self, reason: str, message: str, metadata: Json, response: httpx.Response) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.metadata = metadata
        self.response = response


@dataclass
class Frame:
    """One SSE event as it came, and its ``data`` as JSON."""

    raw: str
    id: str | None
    data: Json


@dataclass
class Stream:
    """An open event stream, read by a naive parser: split on blank lines."""

    response: httpx.Response
    unwrap: str | None
    buffer: str = ""
    raw: list[str] = field(default_factory=list)
    _chunks: AsyncIterator[str] | None = None

    async def next(self, seconds: float = 10) -> Json | None:
        """The next StreamResponse; None at the end."""
        frame = await self.next_frame(seconds)
        return None if frame is None else frame.data

    async def next_frame(self, seconds: float = 10) -> Frame | None:
        async with asyncio.timeout(seconds):
            while "\n\n" not in self.buffer:
                if self._chunks is None:
                    self._chunks = self.response.aiter_text()
                chunk = await anext(self._chunks, None)
                if chunk is None:
                    return None
                self.raw.append(chunk)
                self.buffer += chunk
        event, _, self.buffer = self.buffer.partition("\n\n")
        fields = dict(line.split(": ", 1) for line in event.split("\n") if not line.startswith(":"))
        data = json.loads(fields["data"])
        return Frame(event, fields.get("id"), data[self.unwrap] if self.unwrap else data)

    async def rest(self, seconds: float = 10) -> list[Json]:
        """All that is left, until the server closes."""
        items: list[Json] = []
        while (item := await self.next(seconds)) is not None:
            items.append(item)
        return items


class Door:
    """One caller at one agent's door. ``name`` is ``jsonrpc`` or ``rest``."""

    def __init__(self, name: str, base_url: str, agent: str, token: str) -> None:
        self.name = name
        self.base = f"/agents/{agent}"
        headers = {"Authorization": f"Bearer {token}", "A2A-Version": "1.0"}
        self.http = httpx.AsyncClient(
            base_url=base_url, headers=headers, timeout=40, trust_env=False, verify=NO_CERTIFICATES
        )
        self.last: httpx.Response | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def call(self, operation: str, params: Json, **headers: str) -> Json:
        """The result of a unary operation. Raises DoorError."""
        method, path, kwargs = self.request(operation, params)
        self.last = await self.http.request(method, path, headers=_names(headers), **kwargs)
        return self.result(self.last)

    @asynccontextmanager
    async def open(self, operation: str, params: Json, **headers: str) -> AsyncIterator[Stream]:
        """An open stream. Raises DoorError when the answer is not one."""
        method, path, kwargs = self.request(operation, params)
        async with self.http.stream(method, path, headers=_names(headers), **kwargs) as response:
            self.last = response
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                await response.aread()
                self.result(response)
                raise AssertionError(f"neither a stream nor an error: {response.text}")
            yield Stream(response, "result" if self.name == "jsonrpc" else None)

    def request(self, operation: str, params: Json) -> tuple[str, str, Json]:
        """How the operation looks at this door: method, path, and httpx's arguments."""
        if self.name == "jsonrpc":
            envelope = {"jsonrpc": "2.0", "id": uuid4().hex, "method": operation, "params": params}
            return "POST", f"{self.base}/rpc", {"json": envelope}
        verb, template = REST[operation]
        path = template.format_map({"id": params.get("id"), "taskId": params.get("taskId")})
        others = {key: value for key, value in params.items() if f"{{{key}}}" not in template}
        query = {key: str(value).lower() if isinstance(value, bool) else value for key, value in others.items()}
        return verb, f"{self.base}/a2a{path}", {"json": others} if verb == "POST" else {"params": query}

    def result(self, response: httpx.Response) -> Json:
        body = response.json()
        if "error" not in body:
            assert response.status_code == 200, response.text
            return body["result"] if self.name == "jsonrpc" else body
        raise self.error(response, body["error"])

    def error(self, response: httpx.Response, error: Json) -> DoorError:
        """The error, checked whole: everything but the reason follows from the table."""
        details = error["data"] if self.name == "jsonrpc" else error["details"]
        info = details[0]
        assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo", error
        code, status, status_name = ERRORS[info["reason"]]
        assert info["domain"] == ("waystation" if info["reason"] in OURS else "a2a-protocol.org"), error
        if self.name == "jsonrpc":
            http_level = status in HTTP_LEVEL or info["reason"] == "NOT_FOUND"
            assert (error["code"], response.status_code) == (code, status if http_level else 200), error
        else:
            assert (error["code"], error["status"], response.status_code) == (status, status_name, status), error
        return DoorError(info["reason"], error["message"], info["metadata"], response)

    @property
    def replayed(self) -> bool:
        """Whether the last answer says that it is a duplicate's."""
        return self.last is not None and self.last.headers.get("waystation-replayed") == "true"

    async def send(
        self, message: Json, *, now: bool = False, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Json:
        """SendMessage; the Task. ``now``: returnImmediately; ``more`` are further fields of the request."""
        params: Json = {"message": message} | more
        if now:
            params["configuration"] = params.get("configuration", {}) | {"returnImmediately": True}
        return (await self.call("SendMessage", params, **(headers or {})))["task"]

    async def get(self, task_id: str, **more: Any) -> Json:
        return await self.call("GetTask", {"id": task_id} | more)

    async def cancel(self, task_id: str) -> Json:
        return await self.call("CancelTask", {"id": task_id})

    async def list(self, **filters: Any) -> Json:
        return await self.call("ListTasks", filters)


REST: dict[str, tuple[str, str]] = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


def say(text: str, **fields: Any) -> Json:
    """A user message with one text part and an id of its own; ``fields`` are taskId, contextId …"""
    return {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]} | fields


def state(task: Json) -> str:
    """The state's name without its prefix, of a Task or a statusUpdate."""
    return task["status"]["state"].removeprefix("TASK_STATE_")


def text(holder: Json) -> str:
    """The text of a message or an artifact."""
    return "".join(part.get("text", "") for part in holder["parts"])


def short(item: Json) -> str:
    """A StreamResponse in a word or two: ``task WORKING``, ``WORKING``, ``message hi``, ``stock=A:``, ``stock+3``."""
    if "task" in item:
        return f"task {state(item['task'])}"
    if "message" in item:
        return f"message {text(item['message'])}"
    if "statusUpdate" in item:
        return state(item["statusUpdate"])
    update = item["artifactUpdate"]
    return f"{update['artifact']['artifactId']}{'+' if update.get('append') else '='}{text(update['artifact'])}"


def _names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
