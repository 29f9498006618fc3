"""Follows a task's log on a gRPC stream, and every way such a stream ends (docs/decisions/grpc-stream-ends.md).

A call of this door has no comments and no ``retry:`` as SSE has: HTTP/2 pings keep the connection alive, and a stream
that ends before its task tells so by its status. Called by ``grpc.service``.
"""

import asyncio
import functools
import logging
import random
import time
from collections.abc import Sequence
from typing import Any

from app import offload
from app.errors import Unauthenticated, Unavailable
from app.operations.subscribe import Item, TaskStream
from app.protocol.events import RESUME_EXTENSION
from app.protocol.strict_json import loads_trusted
from app.transports.gateway import Gateway
from app.transports.grpc.calls import GrpcCall
from app.transports.grpc.errors import Context
from app.transports.sse import DRAIN_RETRY_MS, GRACE_SECONDS, JITTER, RETRY_MS, SEND_TIMEOUT_SECONDS

logger = logging.getLogger(__name__)

JsonObject = dict[str, Any]


class Streams:
    """The open streams of one process."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._writes: set[asyncio.Timeout] = set()

    async def follow(self, call: GrpcCall, stream: TaskStream) -> None:
        """Send what ``stream`` gives until it ends.

        Raises Unauthenticated at the token's exp; Unavailable when the process drains, after 15 minutes, and when the
        client takes nothing for 15 s: the client subscribes again, here or at another replica.
        """
        settings, drain, clock = self._gateway.settings, self._gateway.operations.drain, asyncio.get_running_loop().time
        expires_at = clock() + call.ctx.caller.expires_at - time.time()
        ends_at = min(clock() + settings.stream_recycle_seconds * _jittered(1 - JITTER, 1 + JITTER), expires_at)
        await self._send(call, stream, stream.opening)
        while not stream.ended:
            if drain.is_set():
                raise _ended(*DRAIN_RETRY_MS)
            if clock() >= expires_at:
                raise Unauthenticated("The token has expired")
            if clock() >= ends_at:
                raise _ended()
            await self._send(call, stream, await stream.next(ends_at - clock()))

    def begin_drain(self) -> None:
        """Clients that take nothing get 5 s more."""
        latest = asyncio.get_running_loop().time() + GRACE_SECONDS
        for limit in self._writes:
            limit.reschedule(min(limit.when() or latest, latest))

    async def _send(self, call: GrpcCall, stream: TaskStream, items: Sequence[Item]) -> None:
        for item in items:
            message = await offload.run(len(item.body), functools.partial(_shown, call, stream, item))
            await self._write(call.context, message)

    async def _write(self, context: Context, message: bytes) -> None:
        """Waits while the client's flow control window is full."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS) as limit:
                self._writes.add(limit)
                try:
                    await context.write(message)
                finally:
                    self._writes.discard(limit)
        except TimeoutError:
            logger.info("a stalled stream was cut off")
            raise _ended() from None


def _shown(call: GrpcCall, stream: TaskStream, item: Item) -> bytes:
    """The item as a message. With the resume extension each durable one has its cursor in
    ``metadata[URI].lastEventId``, for there is no ``id:`` line here; it comes back as ``last-event-id``."""
    body: JsonObject = loads_trusted(item.body)
    if item.seq is not None and RESUME_EXTENSION in call.ctx.extensions:
        (content,) = body.values()
        ours = content.setdefault("metadata", {}).setdefault(RESUME_EXTENSION, {})
        ours["lastEventId"] = f"{stream.reader.incarnation}.{item.seq}"
    return call.codec.encode(body)


def _ended(low_ms: float = RETRY_MS * (1 - JITTER), high_ms: float = RETRY_MS * (1 + JITTER)) -> Unavailable:
    text = "The stream has ended before its task; subscribe again"
    return Unavailable(text, retry_after=_jittered(low_ms, high_ms) / 1000)


def _jittered(low: float, high: float) -> float:
    return random.uniform(low, high)  # noqa: S311 - jitter
