"""A receiver of push notifications on 127.0.0.1 that records what it gets and behaves as it is told. Called by tests.

Each path has its own manners: answers given one after the other (``script``), then the same one for ever (``always``).
"""

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import struct
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

Json = dict[str, Any]
MAX_HEAD = 64 * 1024
FLOOD_CHUNK = b"x" * 65536
FLOOD_CHUNKS = 160
"""Ten megabytes."""


class Trouble(Enum):
    """What a receiver does instead of answering."""

    HANG = "takes the request and says nothing"
    DRIP = "sends a byte of its head now and then"
    FLOOD = "answers 200 with megabytes"
    RESET = "cuts the connection with RST"
    CLOSE = "closes the connection without a word"


@dataclass(frozen=True, slots=True)
class Reply:
    """An orderly answer; ``headers`` are whole lines."""

    status: int = 200
    headers: tuple[str, ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Received:
    """One whole request. ``headers`` by lower-case name; a name that came twice fails the test."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def webhook_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def seq(self) -> int:
        """Of the event: a delivery's id is task:seq:config."""
        return int(self.webhook_id.split(":")[1])

    def is_signed_with(self, secret: str) -> bool:
        """Standard Webhooks, by hand: v1 is HMAC-SHA256 over id.timestamp.body, keyed with the decoded secret."""
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        signed = f"{self.webhook_id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        return expected in self.headers["webhook-signature"].split(" ")


Manner = Reply | Trouble


class Receiver:
    """``requests`` are all that came, in the order in which they were complete. ``open`` counts those being answered,
    by path; ``most_open`` is the greatest number at once, by path."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.open: defaultdict[str, int] = defaultdict(int)
        self.most_open: defaultdict[str, int] = defaultdict(int)
        self._scripts: defaultdict[str, deque[Manner]] = defaultdict(deque)
        self._always: dict[str, Manner] = {}
        self._news = asyncio.Event()
        self._released = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=MAX_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def script(self, path: str, *manners: Manner | int) -> None:
        """How the next requests for this path are answered; a number is a status."""
        self._scripts[path] += [Reply(one) if isinstance(one, int) else one for one in manners]

    def always(self, path: str, manner: Manner | int) -> None:
        """How all further requests for this path are answered, when its script is over. By default with 200."""
        self._always[path] = Reply(manner) if isinstance(manner, int) else manner

    def release(self) -> None:
        """Those that hang, now and from now on, are answered with 200."""
        self._released.set()

    def at(self, path: str) -> list[Received]:
        return [request for request in self.requests if request.path == path]

    def manner_of(self, request: Received) -> Manner:
        """How this one is answered."""
        script = self._scripts[request.path]
        return script.popleft() if script else self._always.get(request.path, Reply())

    def answered(self, request: Received, manner: Manner) -> None:
        """It was given a whole answer; one that hung was released, with 200."""

    async def until(self, condition: Callable[[], object], seconds: float = 20) -> None:
        """Wait until the condition holds, asked again after each request and each answer."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            seen = [(request.path, request.headers.get("webhook-id")) for request in self.requests]
            raise AssertionError(f"the condition never became true; received: {seen}") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while (request := await _read(reader)) is not None:
                await self._answer(request, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        path = request.path
        self.requests.append(request)
        self.open[path] += 1
        self.most_open[path] = max(self.most_open[path], self.open[path])
        self._news.set()
        manner = self.manner_of(request)
        try:
            await self._behave(manner, writer)
            self.answered(request, manner)
        finally:
            self.open[path] -= 1
            self._news.set()

    async def _behave(self, manner: Manner, writer: asyncio.StreamWriter) -> None:
        match manner:
            case Reply():
                await _reply(writer, manner)
            case Trouble.HANG:
                await self._released.wait()
                await _reply(writer, Reply())
            case Trouble.DRIP:
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Slow: " + b"z" * 10_000:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.2)
            case Trouble.FLOOD:
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(FLOOD_CHUNKS):
                    writer.write(f"{len(FLOOD_CHUNK):x}\r\n".encode() + FLOOD_CHUNK + b"\r\n")
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
                await writer.drain()
            case Trouble.RESET:
                linger = struct.pack("ii", 1, 0)  # on, 0 s: close() sends RST
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
                raise ConnectionResetError
            case Trouble.CLOSE:
                writer.close()
                raise ConnectionResetError


async def _read(reader: asyncio.StreamReader) -> Received | None:
    """The next request of a connection, or None when there is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        assert name.lower() not in headers, f"{name} came twice"
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body, time.monotonic())


async def _reply(writer: asyncio.StreamWriter, reply: Reply) -> None:
    lines = [f"HTTP/1.1 {reply.status} Test", *reply.headers]
    if not any(line.lower().startswith("content-length:") for line in reply.headers):
        lines.append(f"Content-Length: {len(reply.body)}")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body)
    await writer.drain()


@asynccontextmanager
async def receiver(port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver for the length of a block."""
    one = Receiver()
    await one.start(port)
    try:
        yield one
    finally:
        await one.stop()
