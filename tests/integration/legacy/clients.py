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


class NodeClient:
    """The Node program, one process per call. Without ``token`` it sends none."""

    def __init__(self, base_url: str, token: str | None = None) -> None:
        self.base_url = base_url
        self._token = ["--token", token] if token else []

    async def discover(self) -> Json:
        return await self._one("discover")

    async def submit(self, skill: str = "test", **fields: Any) -> Json:
        return await self._one("submit", json.dumps({"skill": skill} | fields))

    async def status(self, task_id: str) -> Json:
        return await self._one("status", task_id)

    async def cancel(self, task_id: str) -> Json:
        return await self._one("cancel", task_id)

    async def events(self, task_id: str) -> list[Event]:
        """The whole stream, up to its end."""
        async with self.stream(task_id) as stream:
            return await stream.rest()

    def stream(self, task_id: str) -> "NodeStream":
        return NodeStream([self.base_url, *self._token, "stream", task_id])

    async def _one(self, *arguments: str) -> Json:
        async with NodeStream([self.base_url, *self._token, *arguments]) as answers:
            (answer,) = await answers.lines()
        return answer


class NodeStream:
    """A running program, its output line by line. Use as an async context manager."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            "node", str(PROGRAM), *self._arguments, stdout=asyncio.subprocess.PIPE, limit=2**26
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def next(self) -> Event:
        """The next event, which must come."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            return _event(json.loads(await self._process.stdout.readline()))

    async def rest(self) -> list[Event]:
        """All events up to the end; a client that threw fails the test."""
        return [_event(line) for line in await self.lines()]

    async def lines(self) -> list[Json]:
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            return [json.loads(line) for line in (await self._process.stdout.read()).splitlines()]


def _event(line: Json) -> Event:
    assert "error" not in line, line
    return line["event"], line["data"]


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
