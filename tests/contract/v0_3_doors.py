"""The doors of A2A 0.3 as a client that is asked in 1.0's words and answers in them, like ``doors.Door``.

The names are ``jsonrpc-0.3`` and ``rest-0.3``. 0.3 has no ListTasks; a historyLength of 0 means all; text and data
parts have neither file name nor media type; ``reason`` of an error is found by the same table, but for the code of
EXTENSION_SUPPORT_REQUIRED, which 0.3 does not know.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import httpx

from tests.contract import v0_3_words as words
from tests.contract.doors import ERRORS, HTTP_LEVEL, OURS, Door, DoorError, Frame, Json, Stream

NAMES = ("jsonrpc-0.3", "rest-0.3")
V0_3_CODES = {"EXTENSION_SUPPORT_REQUIRED": (-32600, 400)}
"""reason -> (code, HTTP status) where they are not 1.0's."""

_CONFIGS = "/tasks/{id}/pushNotificationConfigs"
METHODS = {
    "SendMessage": ("message/send", "POST", "/message:send"),
    "SendStreamingMessage": ("message/stream", "POST", "/message:stream"),
    "GetTask": ("tasks/get", "GET", "/tasks/{id}"),
    "CancelTask": ("tasks/cancel", "POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("tasks/resubscribe", "POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("tasks/pushNotificationConfig/set", "POST", _CONFIGS),
    "GetTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/get", "GET", _CONFIGS + "/{pushNotificationConfigId}",
    ),
    "ListTaskPushNotificationConfigs": ("tasks/pushNotificationConfig/list", "GET", _CONFIGS),
    "DeleteTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/delete", "DELETE", _CONFIGS + "/{pushNotificationConfigId}",
    ),
    "GetExtendedAgentCard": ("agent/getAuthenticatedExtendedCard", "GET", "/card"),
}  # fmt: skip
"""Operation -> method, verb and path. ListTasks is not among them."""


@dataclass
class V03Stream(Stream):
    """A stream whose events are read as StreamResponses; ``final`` stays in a status update."""

    proto: bool = False

    async def next_frame(self, seconds: float = 10) -> Frame | None:
        frame = await super().next_frame(seconds)
        return frame and Frame(frame.raw, frame.id, words.item(frame.data, proto=self.proto))


class V03Door(Door):
    """One caller at one agent's door of 0.3. It sends no A2A-Version, as clients of 0.3 do."""

    def __init__(self, name: str, base_url: str, agent: str, token: str) -> None:
        super().__init__(name, base_url, agent, token)
        self.proto = name == "rest-0.3"
        del self.http.headers["A2A-Version"]
        self.http.headers["User-Agent"] = "waystation-tests"

    async def call(self, operation: str, params: Json, **headers: str) -> Json:
        return words.answer(operation, await super().call(operation, params, **headers), proto=self.proto)

    @asynccontextmanager
    async def open(self, operation: str, params: Json, **headers: str) -> AsyncIterator[Stream]:
        async with super().open(operation, params, **headers) as stream:
            yield V03Stream(stream.response, None if self.proto else "result", proto=self.proto)

    def request(self, operation: str, params: Json) -> tuple[str, str, Json]:
        method, verb, template = METHODS[operation]
        fields = words.request(operation, params, proto=self.proto)
        if not self.proto:
            envelope = {"jsonrpc": "2.0", "id": uuid4().hex, "method": method, "params": fields}
            return "POST", f"{self.base}/rpc", {"json": envelope}
        others = {key: value for key, value in fields.items() if f"{{{key}}}" not in template}
        path = f"{self.base}/a2a/v1{template.format_map(fields)}"
        return verb, path, {"json": others} if verb == "POST" else {"params": others}

    def result(self, response: httpx.Response) -> Any:
        body = cast("Json", response.json())
        if self.proto:
            if response.status_code == 200:
                return body
            raise self.error(response, body)
        if "error" not in body:
            assert response.status_code == 200, response.text
            return body["result"]
        raise self.error(response, body["error"])

    def error(self, response: httpx.Response, error: Json) -> DoorError:
        """Both doors say the JSON-RPC code; HTTP+JSON says it at the top of the body."""
        info = error["data"][0]
        assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo", error
        reason = info["reason"]
        code, status = V0_3_CODES.get(reason) or ERRORS[reason][:2]
        assert info["domain"] == ("waystation" if reason in OURS else "a2a-protocol.org"), error
        if not self.proto and not (status in HTTP_LEVEL or reason == "NOT_FOUND"):
            status = 200
        assert (error["code"], response.status_code) == (code, status), error
        return DoorError(reason, error["message"], info["metadata"], response)
