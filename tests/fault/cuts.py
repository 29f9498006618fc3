"""Readers whose connections are cut at random bytes, one for each kind of stream. Called by test_cuts.py.

Each follows one task from its first event to its last, at one replica after the other, and keeps what every single
connection gave, to be held against the log.
"""

import asyncio
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fault.check import streams_are_the_log
from tests.fault.history import Frame, History, Read
from tests.fault.logged import HIDDEN, RESUME_EXTENSION
from tests.fault.wire import LOST, Connection
from tests.support.tokens import bearer, mint

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """What one connection gave; ``whole``: the server closed it."""

    cursor: int
    frames: list[Frame]
    whole: bool


class CutReader:
    """Cuts ``cuts`` connections, then reads in peace. ``done`` counts the connections, ``torn`` those
    that broke off within a frame."""

    def __init__(self, urls: Sequence[str], agent: str, task: str, cuts: int, rng: random.Random) -> None:
        self.agent, self.task = agent, task
        self.parts: list[Part] = []
        self.done = self.torn = 0
        self.rng = rng
        self.headers = bearer(mint("a")) | {"A2A-Version": "1.0"}
        self._urls = urls
        self._cuts = cuts

    def request(self, url: str, cursor: int) -> Connection:
        raise NotImplementedError

    def at_end(self, connection: Connection) -> bool:
        """Whether an answer that is no stream says that there is nothing after the cursor."""
        answer = json.loads(connection.body)["error"]
        details = answer["data"] if "data" in answer else answer["details"]
        return details[0]["reason"] == "UNSUPPORTED_OPERATION"

    def check(self, log: list[Frame]) -> None:
        """Fail unless the parts are the log."""
        raise NotImplementedError

    async def follow(self) -> None:
        """Until the log's end."""
        cursor = 0
        for url in itertools.cycle(self._urls):
            connection = self.request(url, cursor)
            try:
                async with connection:
                    await self._read(connection)
            except LOST:
                await asyncio.sleep(0.02)
            frames = connection.frames() if connection.status == 200 else []
            self.torn += not connection.body.endswith(b"\n\n") and connection.status == 200
            self.parts.append(Part(cursor, frames, connection.ended))
            cursor = max(cursor, *(frame.seq for frame in frames), 0)
            if connection.ended:
                assert connection.status == 200 or connection.status == 204 or self.at_end(connection), connection.body
                return

    async def _read(self, connection: Connection) -> None:
        """Cut before the head, in the head, within the first frames, or later; with FIN or with RST."""
        where, calm = self.rng.random(), self.done >= self._cuts
        self.done += 1
        await connection.send(self.rng.randrange(len(connection.request)) if where < 0.05 and not calm else None)
        if where > 0.1 or calm:
            await connection.head()
            size = self.rng.randrange(1, 150 if where < 0.4 else 6000)
            await connection.read(2**40 if calm else size)
        if self.rng.random() < 0.5:
            connection.reset()


class NativeReader(CutReader):
    """``GET /v1/tasks/{id}/events``, the cursor in the header, in the query, or in both."""

    def request(self, url: str, cursor: int) -> Connection:
        place = self.rng.choice(["header", "query", "both"])
        headers = self.headers | ({} if place == "query" else {"Last-Event-ID": f"1.{cursor}"})
        older = self.rng.randrange(cursor + 1) if place == "both" else cursor
        query = "" if place == "header" else f"?after_sequence_number={older}"
        return Connection(url, f"/v1/tasks/{self.task}/events{query}", headers)

    def check(self, log: list[Frame]) -> None:
        reads = [Read("reader", self.task, part.cursor, tuple(part.frames), part.whole) for part in self.parts]
        assert list(streams_are_the_log(History(reads=reads, logs={self.task: log}), {})) == []
        assert [frame for part in self.parts for frame in part.frames] == log


class RestReader(CutReader):
    """``:subscribe`` with the resume extension: a Task without an id, then exact replay."""

    def request(self, url: str, cursor: int) -> Connection:
        headers = self.headers | {"A2A-Extensions": RESUME_EXTENSION, "Last-Event-ID": f"1.{cursor}"}
        return Connection(url, f"/agents/{self.agent}/a2a/tasks/{self.task}:subscribe", headers)

    def unwrap(self, frame: Frame) -> str:
        """The StreamResponse's text."""
        return frame.data

    def check(self, log: list[Frame]) -> None:
        visible = [frame for frame in log if frame.event not in HIDDEN]
        seen = 0
        for part in self.parts:
            if not part.frames:
                continue
            first, *rest = part.frames
            assert (first.seq, list(json.loads(self.unwrap(first)))) == (0, ["task"])
            place = sum(frame.seq <= part.cursor for frame in visible)
            assert [frame.seq for frame in rest] == [frame.seq for frame in visible[place : place + len(rest)]]
            self.check_bodies(rest, log)
            seen += len(rest)
            assert not part.whole or place + len(rest) == len(visible)
        assert seen == len(visible), "every event once"

    def check_bodies(self, frames: list[Frame], log: list[Frame]) -> None:
        """A2A's payload is the stored text, and so is the end of the native event."""
        for frame in frames:
            body = self.unwrap(frame)
            assert (frame.event, body[0]) == ("", "{")
            assert log[frame.seq - 1].data.endswith(f"}},{body[1:]}")


class RpcReader(RestReader):
    """SubscribeToTask with the cursor in the request's metadata."""

    def request(self, url: str, cursor: int) -> Connection:
        params = {"id": self.task, "metadata": {RESUME_EXTENSION: f"1.{cursor}"}}
        body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "SubscribeToTask", "params": params}).encode()
        headers = self.headers | {"A2A-Extensions": RESUME_EXTENSION}
        return Connection(url, f"/agents/{self.agent}/rpc", headers, body)

    def unwrap(self, frame: Frame) -> str:
        start, end = '{"jsonrpc":"2.0","id":7,"result":', "}"
        assert frame.data.startswith(start)
        return frame.data[len(start) : -len(end)]


class PlainReader(RestReader):
    """``:subscribe`` as a client without the extension: the Task as of a seq, then what follows it."""

    def request(self, url: str, cursor: int) -> Connection:
        headers = self.headers | {"Last-Event-ID": f"1.{self.rng.randrange(100)}"}  # must be ignored
        return Connection(url, f"/agents/{self.agent}/a2a/tasks/{self.task}:subscribe", headers)

    def check(self, log: list[Frame]) -> None:
        last = 0
        for part in self.parts:
            if part.frames:
                first, *rest = part.frames
                assert first.seq >= last, "a snapshot never goes back"
                assert artifact_text(json.loads(first.data)["task"]) == written_text(log[: first.seq])
                after = [frame.seq for frame in log[first.seq :] if frame.event not in HIDDEN]
                assert [frame.seq for frame in rest] == after[: len(rest)]
                self.check_bodies(rest, log)
                last = part.frames[-1].seq


def artifact_text(task: Json) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])


def written_text(log: list[Frame]) -> str:
    """The text of all artifact events, of which only the first one replaces."""
    events = [json.loads(frame.data) for frame in log]
    return "".join(
        artifact_text({"artifacts": [e["artifactUpdate"]["artifact"]]}) for e in events if "artifactUpdate" in e
    )


READERS = {"native": NativeReader, "rest": RestReader, "jsonrpc": RpcReader, "plain": PlainReader}
