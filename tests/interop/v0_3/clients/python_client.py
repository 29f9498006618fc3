"""Drives the official Python client of A2A 0.3 (``a2a-sdk`` 0.3.x) for the tests in tests/interop/v0_3.

Runs in an environment of its own that holds nothing but the official SDK. Reads one JSON command a line from standard
input and carries all of them out concurrently; see tests/interop/programs.py for the protocol. ``request`` is what the
method of the official client takes, in 0.3's JSON.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TransportProtocol,
)

TIMEOUT_SECONDS = 60
RESUME_EXTENSION = "https://waystation.dev/ext/resume/v1"


def emit(call_id: str, **fields: Any) -> None:
    print(json.dumps({"id": call_id, **fields}), flush=True)


class Clients:
    """One official client per (address, token, binding, streaming), made from the agent's card on first use."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, ...], Client] = {}

    async def get(self, command: dict[str, Any], streaming: bool) -> Client:
        key = (command["url"], command["token"], command["binding"], str(streaming))
        if key not in self._clients:
            http = httpx.AsyncClient(
                timeout=TIMEOUT_SECONDS, headers={"Authorization": f"Bearer {command['token']}"}, trust_env=False
            )
            config = ClientConfig(
                streaming=streaming,
                httpx_client=http,
                supported_transports=[TransportProtocol(command["binding"])],
                extensions=[RESUME_EXTENSION],
            )
            card = await A2ACardResolver(http, command["url"]).get_agent_card()
            self._clients[key] = ClientFactory(config).create(card)
        return self._clients[key]


async def results(clients: Clients, command: dict[str, Any]) -> AsyncIterator[Any]:
    """The objects that the client's method gives for one command."""
    op, request = command["op"], command["request"]
    client = await clients.get(command, streaming=op in {"stream", "subscribe"})
    if op == "card":
        yield await client.get_card()
    elif op in {"send", "stream"}:
        configuration = MessageSendConfiguration.model_validate(request.get("configuration", {}))
        message = Message.model_validate(request["message"])
        async for item in client.send_message(message, configuration=configuration):
            yield latest(item)
    elif op == "subscribe":
        async for item in client.resubscribe(TaskIdParams.model_validate(request)):
            yield latest(item)
    elif op == "get":
        yield await client.get_task(TaskQueryParams.model_validate(request))
    elif op == "cancel":
        yield await client.cancel_task(TaskIdParams.model_validate(request))
    elif op == "set_config":
        yield await client.set_task_callback(TaskPushNotificationConfig.model_validate(request))
    elif op == "get_config":
        yield await client.get_task_callback(GetTaskPushNotificationConfigParams.model_validate(request))


def latest(item: Any) -> Any:
    """What the server sent: the client gives (its own fold of the task, the update)."""
    if not isinstance(item, tuple):
        return item
    task, update = item
    return task if update is None else update


async def carry_out(clients: Clients, command: dict[str, Any]) -> None:
    call_id = command["id"]
    try:
        async for item in results(clients, command):
            emit(call_id, item=item.model_dump(mode="json", exclude_none=True))
    except asyncio.CancelledError:
        emit(call_id, end=True, stopped=True)
    except A2AClientJSONRPCError as error:
        emit(call_id, error={"type": type(error).__name__, "reason": str(error.error.code), "message": str(error)})
    except A2AClientHTTPError as error:
        emit(call_id, error={"type": type(error).__name__, "reason": str(error.status_code), "message": str(error)})
    except Exception as error:
        emit(call_id, error={"type": type(error).__name__, "reason": "UNKNOWN", "message": repr(error)})
    else:
        emit(call_id, end=True)


async def main() -> None:
    clients = Clients()
    calls: dict[str, asyncio.Task[None]] = {}
    reader = asyncio.StreamReader(limit=16 * 1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        if command["op"] == "stop":
            calls[command["target"]].cancel()
        else:
            calls[command["id"]] = asyncio.create_task(carry_out(clients, command))


if __name__ == "__main__":
    asyncio.run(main())
