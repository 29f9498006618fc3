"""The older ``/tasks`` dialect as a client that is asked in 1.0's words and answers in them, like ``doors.Door``.

It can submit, show and cancel, and be refused a stream; what else it cannot say is in ``scenarios/limits.py``.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.contract.doors import Door, DoorError, Json, Stream

NAME = "legacy"
CALLS = {
    "SendMessage": ("POST", "/tasks"),
    "GetTask": ("GET", "/tasks/{id}"),
    "CancelTask": ("POST", "/tasks/{id}/cancel"),
    "SubscribeToTask": ("GET", "/tasks/{id}/stream"),
}


class LegacyDoor(Door):
    """One caller at one agent's door of the older dialect. It sends no header but Authorization."""

    def __init__(self, name: str, base_url: str, agent: str, token: str) -> None:
        super().__init__(name, base_url, agent, token)
        del self.http.headers["A2A-Version"]

    async def call(self, operation: str, params: Json, **headers: str) -> Json:
        task = _task(await super().call(operation, params, **headers))
        return {"task": task} if operation == "SendMessage" else task

    @asynccontextmanager
    async def open(self, operation: str, params: Json, **headers: str) -> AsyncIterator[Stream]:
        """Only ever an error: what its streams tell is not StreamResponses."""
        async with super().open(operation, params, **headers):
            raise AssertionError("this dialect's streams have words of their own: tests/integration/legacy")
            yield  # makes it a generator

    def request(self, operation: str, params: Json) -> tuple[str, str, Json]:
        verb, template = CALLS[operation]
        path = f"{self.base}{template.format_map(params)}"
        if operation != "SendMessage":
            return verb, path, {}
        (part,) = params["message"]["parts"]
        return verb, path, {"json": {"skill": "test", "input": part.get("text", part.get("data"))}}

    def result(self, response: httpx.Response) -> Json:
        body: Json = response.json()
        if "error" not in body:
            assert response.status_code == 200, response.text
            return body
        raise self.error(response, body["error"])

    def error(self, response: httpx.Response, error: Json) -> DoorError:
        """A cancel that comes too late is 409 here, and has the reason that the native API gives it."""
        info = error["details"][0]
        if info["reason"] == "TASK_TERMINAL":
            assert (error["code"], error["status"], response.status_code) == (409, "ABORTED", 409), error
            return DoorError("TASK_NOT_CANCELABLE", error["message"], info["metadata"], response)
        return super().error(response, error)


def _task(shown: Json) -> Json:
    """The dialect's task as a Task: ``input`` is the one message that it knows of the client."""
    status: Json = {"state": "TASK_STATE_" + shown["state"].replace("-", "_").upper()}
    if "message" in shown:
        status["message"] = {"parts": [{"text": shown["message"]}]}
    asked: Json = {"role": "ROLE_USER", "parts": [_part(shown["input"])]}
    artifacts = [{"artifactId": one["id"], "parts": [_part(one["content"])]} for one in shown["artifacts"]]
    return {"id": shown["id"], "status": status, "history": [asked], "artifacts": artifacts}


def _part(content: Any) -> Json:
    return {"text": content} if isinstance(content, str) else {"data": content}
