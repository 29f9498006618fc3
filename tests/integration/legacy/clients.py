"""Clients of the older dialect: the Node program, and one on a bare socket that gets one byte at a time."""

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.integration.raw_http import RawStream
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint

Json = dict[str, Any]
Event = tuple[str, Json]

DEFAULT_AGENT = "front-desk"
PROGRAM = Path(__file__).with_name("client.mjs")
SECONDS = 30


class NodeProgram:
    """The Node client as a program: one process for all calls of a test. Use as an async context manager."""

    async def __aenter__(self) -> Self:
        self._lines: dict[int, asyncio.Queue[Json]] = {}
        self._process = await asyncio.create_subprocess_exec(
            "node", str(PROGRAM), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**26
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading

    def call(self, **call: Any) -> asyncio.Queue[Json]:
        """Make a call; its lines come in the queue."""
        number = len(self._lines)
        self._lines[number] = asyncio.Queue()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number} | call).encode() + b"\n")
        return self._lines[number]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            line = json.loads(raw)
            self._lines[line.pop("id")].put_nowait(line)


class NodeClient:
    """One of the program's clients. Without ``token`` it sends none."""

    def __init__(self, program: NodeProgram, base_url: str, token: str | None = None) -> None:
        self._program = program
        self._client = {"base": base_url} | ({"token": token} if token else {})

    async def discover(self) -> Json:
        return await self._answer("discover")

    async def submit(self, skill: Any = "test", **fields: Any) -> Json:
        return await self._answer("submitTask", {"skill": skill} | fields)

    async def status(self, task_id: str) -> Json:
        return await self._answer("getTaskStatus", task_id)

    async def cancel(self, task_id: str) -> Json:
        return await self._answer("cancelTask", task_id)

    def stream(self, task_id: str) -> "NodeStream":
        return NodeStream(self._program.call(**self._client, method="streamTask", argument=task_id))

    async def events(self, task_id: str) -> list[Event]:
        """The whole stream, up to its end."""
        return await self.stream(task_id).rest()

    async def _answer(self, method: str, argument: Any = None) -> Json:
        """The answer, or ``{"error": text}`` when the client threw."""
        queue = self._program.call(**self._client, method=method, argument=argument)
        async with asyncio.timeout(SECONDS):
            line = await queue.get()
        return line.get("answer", line)


class NodeStream:
    """An open stream of the program's."""

    def __init__(self, lines: asyncio.Queue[Json]) -> None:
        self._lines = lines

    async def next(self) -> Event:
        """The next event, which must come."""
        line = await self._line()
        assert "event" in line, line
        return line["event"], line["data"]

    async def rest(self) -> list[Event]:
        """All events up to the end; a client that threw fails the test."""
        events: list[Event] = []
        while "event" in (line := await self._line()):
            events.append((line["event"], line["data"]))
        assert line == {"end": True}
        return events

    async def error(self) -> str:
        """What the client threw, perhaps after some events."""
        while "event" in (line := await self._line()):
            pass
        return line["error"]

    async def _line(self) -> Json:
        async with asyncio.timeout(SECONDS):
            return await self._lines.get()


def legacy_stream(
    broker: BrokerProcess, agent: str, task_id: str, *, tenant: str = "a", last_event_id: str | None = None
) -> RawStream:
    """The stream on a bare socket."""
    headers = bearer(mint(tenant)) | ({"Last-Event-ID": last_event_id} if last_event_id is not None else {})
    return RawStream(broker.base_url, "GET", f"/agents/{agent}/tasks/{task_id}/stream", headers)


async def raw_events(broker: BrokerProcess, agent: str, task_id: str, **options: Any) -> list[Event]:
    """What the naive reader finds in the whole stream of a task that ends."""
    async with legacy_stream(broker, agent, task_id, **options) as stream:
        await stream.head()
        assert stream.status == 200
        return naive(await stream.rest())


def naive(raw: bytes) -> list[Event]:
    """The reader of the traps, with the smallest chunks there are: each byte is decoded by itself (2 and 3), blocks end
    with two LF (1), of several data lines the last counts (2), ids and comments are nothing (4)."""
    text = "".join(bytes([byte]).decode(errors="replace") for byte in raw)
    return list(_blocks(text.split("\n\n")[:-1]))


def _blocks(blocks: Iterable[str]) -> Iterable[Event]:
    for block in blocks:
        name, data = "message", ""
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            if line.startswith("data: "):
                data = line.removeprefix("data: ")
        if data:
            yield name, json.loads(data)
