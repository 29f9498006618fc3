"""Drives the official Python client (a2a-sdk), any 1.x version, for the tests in ``tests/interop``.

Started by ``tests/interop/programs.py`` inside an environment that holds nothing but the official SDK. Reads one JSON
command a line from standard input and carries all of them out concurrently; see ``programs.py`` for the protocol.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import httpx
from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types import CancelTaskRequest, GetTaskRequest, ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest
from a2a.utils.errors import A2A_ERROR_REASONS
from google.protobuf.json_format import MessageToDict, ParseDict

REQUEST_TYPES = {
    "send": SendMessageRequest,
    "stream": SendMessageRequest,
    "get": GetTaskRequest,
    "list": ListTasksRequest,
    "cancel": CancelTaskRequest,
    "subscribe": SubscribeToTaskRequest,
}
REASONS = {error.__name__: reason for error, reason in A2A_ERROR_REASONS.items()}
TIMEOUT_SECONDS = 60


def emit(call_id: str, **fields: Any) -> None:
    print(json.dumps({"id": call_id, **fields}), flush=True)


class Clients:
    """One official client per (address, token, binding, streaming), made from the agent's card on first use."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, ...], Client] = {}

    async def get(self, command: dict[str, Any], streaming: bool) -> Client:
        key = (command["url"], command["token"], command["binding"], str(streaming))
        if key not in self._clients:
            http = http_client(command["token"])
            config = ClientConfig(
                streaming=streaming,
                httpx_client=http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                supported_protocol_bindings=[command["binding"]],
            )
            card = await A2ACardResolver(http, command["url"]).get_agent_card()
            self._clients[key] = ClientFactory(config).create(card)
        return self._clients[key]


def http_client(token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=TIMEOUT_SECONDS, headers={"Authorization": f"Bearer {token}"})


def call_context(command: dict[str, Any]) -> ClientCallContext | None:
    """gRPC has no headers of a connection: the token goes along with each call, as metadata."""
    if command["binding"] != "GRPC":
        return None
    return ClientCallContext(service_parameters={"authorization": f"Bearer {command['token']}"})


async def results(clients: Clients, command: dict[str, Any]) -> AsyncIterator[Any]:
    """The protobuf messages that the client's method gives for one command."""
    op = command["op"]
    if op == "card":
        async with http_client(command["token"]) as http:
            yield await A2ACardResolver(http, command["url"]).get_agent_card()
        return
    client = await clients.get(command, streaming=op in {"stream", "subscribe"})
    request: Any = ParseDict(command["request"], REQUEST_TYPES[op]())
    context = call_context(command)
    if op in {"send", "stream"}:
        async for item in client.send_message(request, context=context):
            yield item
    elif op == "subscribe":
        async for item in client.subscribe(request, context=context):
            yield item
    elif op == "get":
        yield await client.get_task(request, context=context)
    elif op == "list":
        yield await client.list_tasks(request, context=context)
    elif op == "cancel":
        yield await client.cancel_task(request, context=context)


async def carry_out(clients: Clients, command: dict[str, Any]) -> None:
    call_id = command["id"]
    try:
        async for item in results(clients, command):
            emit(call_id, item=MessageToDict(item))
    except asyncio.CancelledError:
        emit(call_id, end=True, stopped=True)
    except Exception as error:
        reason = REASONS.get(type(error).__name__, "UNKNOWN")
        emit(call_id, error={"type": type(error).__name__, "reason": reason, "message": str(error)})
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
