"""Server-sent events: framing, heartbeats, and every way a stream ends (resume-contract.md, Transport 6 and 7).

sse-starlette watches the peer, the send time-out and the server's exit; what goes over the wire is our own bytes, so
the frames are exact and are made once. Called by the A2A doors and the native readers.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Protocol, TypeVar, cast

import anyio
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.operations.deps import Operations
from app.protocol.strict_json import escape_line_separators
from app.transports.call_context import Call

logger = logging.getLogger(__name__)

T = TypeVar("T", covariant=True)

HEARTBEAT = b": hb\n"
"""A comment without a blank line after it: with one, some parsers emit an empty event."""
RETRY_MS = 2000
DRAIN_RETRY_MS = (500, 3000)
SEND_TIMEOUT_SECONDS = 15
GRACE_SECONDS = 5
JITTER = 0.2
HEARTBEAT_MARGIN = 0.8
"""Heartbeats come at most HEARTBEAT_SECONDS apart, also when a read of the ledger takes its time in between."""
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Source(Protocol[T]):
    """What a stream shows: first ``opening``, then what ``next`` gives within ``timeout`` seconds, until ``ended``."""

    @property
    def ended(self) -> bool: ...

    @property
    def opening(self) -> Sequence[T]: ...

    async def next(self, timeout: float) -> Sequence[T]: ...


def frame(data: str, *, cursor: str | None = None, event: str | None = None) -> bytes:
    """One event: LF line ends, one data line. Only rows of the log have a ``cursor``."""
    head = f"id: {cursor}\n" if cursor else ""
    if event:
        head += f"event: {event}\n"
    return f"{head}data: {escape_line_separators(data)}\n\n".encode()


def stream_response(
    call: Call, source: Source[T], show: Callable[[T], bytes], headers: Mapping[str, str] | None = None
) -> Response:
    """The open stream, each item as ``show`` prints it. It ends at its source's end, at the token's exp, when the
    process drains, or after 15 minutes; except at the first with ``retry:``, so that the client comes back."""
    return _EventStream(
        _body(call, source, show),
        headers={**HEADERS, **(headers or {})},
        ping=0,  # a task of its own per stream, 6 KiB, and its comments end in a blank line
        send_timeout=SEND_TIMEOUT_SECONDS,
        shutdown_event=cast("anyio.Event", _BeginDrain(call.gateway.operations)),
        shutdown_grace_period=GRACE_SECONDS,
    )


async def _body(call: Call, source: Source[T], show: Callable[[T], bytes]) -> AsyncGenerator[bytes]:
    settings, drain, clock = call.gateway.settings, call.gateway.operations.drain, asyncio.get_running_loop().time
    lifetime = min(settings.stream_recycle_seconds * _jittered(), call.caller.expires_at - time.time())
    ends_at, silence = clock() + lifetime, settings.heartbeat_seconds * HEARTBEAT_MARGIN
    yield b": ok\n" + _retry(RETRY_MS * _jittered()) + b"".join(map(show, source.opening))
    beat_at = clock() + silence
    while not source.ended:
        now = clock()
        if drain.is_set():
            yield _retry(random.uniform(*DRAIN_RETRY_MS))  # noqa: S311 - jitter
            return
        if now >= ends_at:
            yield _retry(RETRY_MS * _jittered())
            return
        frames = b"".join(map(show, await source.next(min(ends_at, beat_at) - now)))
        if frames or clock() >= beat_at:
            yield frames or HEARTBEAT
            beat_at = clock() + silence


class _EventStream(EventSourceResponse):
    """A reader that takes nothing for 15 s is cut off; it comes back by its cursor."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            logger.info("a stalled stream was cut off")


class _BeginDrain:
    """Stands in for the event that sse-starlette sets when the server is told to exit: all streams end together."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def set(self) -> None:
        if not self._operations.drain.is_set():
            self._operations.begin_drain()


def _retry(milliseconds: float) -> bytes:
    return f"retry: {milliseconds:.0f}\n".encode()


def _jittered() -> float:
    return random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - jitter
