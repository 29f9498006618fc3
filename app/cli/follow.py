"""Follows a task's events over the native stream, across cut connections, recycled ones and restarted brokers.

It resumes with Last-Event-ID after the last frame it has seen, so that every event is given exactly once. Used by
``tasks watch`` and ``send --follow``.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import httpx

from app.cli.broker import Broker, refusal, retry_after, segment
from app.cli.errors import CliError
from app.cli.frames import RETRY, Frame, read_frames
from app.cli.output import JsonObject
from app.protocol.states import TaskState

PATIENCE_SECONDS = 120
"""How long a broker may stay away before the follower gives up."""
FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 3

Notice = Callable[[str], None]


class Follower:
    """Reads one task's events after a cursor or seq ("" = from the first). ``notice`` hears of reconnections."""

    def __init__(self, broker: Broker, task_id: str, after: str, notice: Notice) -> None:
        self._broker = broker
        self._path = f"/v1/tasks/{segment(task_id)}/events"
        self._cursor = after
        self._notice = notice
        self._delay = FIRST_DELAY_SECONDS
        self._away_since: float | None = None

    async def events(self) -> AsyncIterator[Frame]:
        """Every event in order, until the task's log ends with its terminal event. Raises CliError when the broker
        refuses, or stays away for PATIENCE_SECONDS."""
        while True:
            try:
                async for frame in self._connection():
                    yield frame
            except _End:
                return
            except _Away as away:
                await self._wait(away)

    async def _connection(self) -> AsyncIterator[Frame]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self._cursor} if self._cursor else {})
        try:
            async with self._broker.stream(self._path, params={}, headers=headers) as response:
                await _check(response)
                async for frame in read_frames(response.aiter_lines()):
                    self._away_since = None
                    if frame.kind == RETRY:
                        self._delay = min(frame.data["milliseconds"] / 1000, MAX_DELAY_SECONDS)
                        continue
                    self._cursor = frame.id or self._cursor
                    yield frame
                    if is_terminal(frame):
                        raise _End
        except httpx.TransportError as exc:
            raise _Away(self._broker.unreachable(exc)) from exc
        raise _Away(CliError("the broker keeps closing the stream", remedy="look at its log"), self._delay)

    async def _wait(self, away: "_Away") -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self._notice(f"stream interrupted; resuming after {self._cursor or 'the start'}")
        elif now - self._away_since > PATIENCE_SECONDS:
            raise away.error
        await asyncio.sleep(self._delay if away.seconds is None else away.seconds)


class _End(Exception):
    """The log has ended."""


class _Away(Exception):
    """The connection is gone; try again after ``seconds`` (None = the stream's own retry time)."""

    def __init__(self, error: CliError, seconds: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.seconds = seconds


async def _check(response: httpx.Response) -> None:
    if response.status_code == 204:
        raise _End
    if response.is_success:
        return
    await response.aread()
    error = refusal(response)
    if response.status_code in (429, 502, 503):
        raise _Away(error, retry_after(response))
    raise error


def state_of(frame: Frame) -> TaskState | None:
    """The task state a frame tells of, or None when it tells of none."""
    data: JsonObject = frame.data
    holder: JsonObject = data.get("statusUpdate") or data.get("task") or {}
    state = holder.get("status", {}).get("state")
    return TaskState.parse(state) if state else None


def is_terminal(frame: Frame) -> bool:
    return state_of(frame) in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED)
