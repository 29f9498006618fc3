"""Drives a client program: an official A2A client in a process and an environment of its own.

Used by the tests of this folder through the ``agent`` fixture. The protocol, one JSON object a line:

- to the program: ``{"id", "op", "url", "token", "binding", "request"}``; ``op`` is card, send, stream, get, list,
  cancel or subscribe, ``url`` the agent's base address, ``binding`` JSONRPC, HTTP+JSON or GRPC, ``request`` A2A's own
  request object. Commands run concurrently. ``{"id", "op": "stop", "target"}`` abandons a call that is under way, as a
  client that goes away does;
- from the program: ``{"id", "item"}`` for every object that the official client gave, then ``{"id", "end": true}`` or
  ``{"id", "error": {"type", "reason", "message"}}``.
"""

import asyncio
import itertools
import json
import subprocess
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

ANSWER_SECONDS = 45.0
Json = dict[str, Any]


class ClientError(Exception):
    """The official client raised. ``reason`` is A2A's UPPER_SNAKE name, ``type`` the class in the client's language."""

    def __init__(self, error: dict[str, str]) -> None:
        super().__init__(f"{error['type']} ({error['reason']}): {error['message']}")
        self.reason = error["reason"]
        self.type = error["type"]


class Call:
    """A call that is under way, made and read in one event loop; iterating gives its items as they come."""

    def __init__(self, program: "ClientProgram", call_id: str) -> None:
        self._program = program
        self._id = call_id
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[Json] = asyncio.Queue()
        self._ended = False

    def feed(self, line: Json) -> None:
        """Called by the program's reader thread."""
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:
            return  # the test is over and its loop closed

    async def next(self, seconds: float = ANSWER_SECONDS) -> Json | None:
        """The next item, None at the end. Raises ClientError, or TimeoutError after ``seconds``."""
        if self._ended:
            return None
        try:
            line = await asyncio.wait_for(self._lines.get(), seconds)
        except TimeoutError:
            raise TimeoutError(f"no answer within {seconds} s; stderr: {self._program.stderr()}") from None
        self._ended = "item" not in line
        if "error" in line:
            raise ClientError(line["error"])
        return line.get("item")

    async def __aiter__(self) -> AsyncIterator[Json]:
        while (item := await self.next()) is not None:
            yield item

    async def rest(self) -> list[Json]:
        """All items up to the end."""
        return [item async for item in self]

    async def stop(self) -> None:
        """Abandons the call and waits until the client has let go of it."""
        self._program.write({"id": "stop", "op": "stop", "target": self._id})
        await self.rest()


class ClientProgram:
    """The process of one client program, shared by the tests of one pytest worker."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._calls: dict[str, Call] = {}
        self._ids = itertools.count(1)
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_results, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def call(self, command: Json) -> Call:
        call_id = str(next(self._ids))
        call = self._calls[call_id] = Call(self, call_id)
        self.write({"id": call_id, **command})
        return call

    def write(self, command: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def stderr(self) -> str:
        return "".join(self._errors)[-4000:]

    def close(self) -> None:
        """Ends the program: it stops when its standard input does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join()
        self._process.stdout.close()
        self._process.stderr.close()

    def _read_results(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            self._calls[line["id"]].feed(line)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for text in self._process.stderr:
            self._errors.append(text)


@dataclass(frozen=True)
class Client:
    """One user of one agent: an official client with an address, a token and a binding."""

    program: ClientProgram = field(repr=False)
    binding: str
    url: str
    token: str = field(repr=False)

    def at(self, url: str) -> "Client":
        """The same user at another replica's address of the agent."""
        return replace(self, url=url)

    async def card(self) -> Json:
        return await self._one("card", {})

    async def send(self, message: Json, **configuration: Any) -> Json:
        """Sends and gives the Task; waits for the turn's end unless ``returnImmediately=True``."""
        return (await self._one("send", {"message": message, "configuration": configuration}))["task"]

    async def get(self, task_id: str, **fields: Any) -> Json:
        return await self._one("get", {"id": task_id, **fields})

    async def list(self, **fields: Any) -> Json:
        return await self._one("list", fields)

    async def cancel(self, task_id: str, **fields: Any) -> Json:
        return await self._one("cancel", {"id": task_id, **fields})

    def start_send(self, message: Json, **configuration: Any) -> Call:
        return self._call("send", {"message": message, "configuration": configuration})

    def start_cancel(self, task_id: str) -> Call:
        return self._call("cancel", {"id": task_id})

    def stream(self, message: Json) -> Call:
        return self._call("stream", {"message": message})

    def subscribe(self, task_id: str) -> Call:
        return self._call("subscribe", {"id": task_id})

    def _call(self, op: str, request: Json) -> Call:
        return self.program.call(
            {"op": op, "url": self.url, "token": self.token, "binding": self.binding, "request": request}
        )

    async def _one(self, op: str, request: Json) -> Json:
        (item,) = await self._call(op, request).rest()
        return item
