"""The events of one lease on their way to the ledger: in order, numbered, resent, bounded. Owned by a held lease.

Events written while a request is under way leave together in the next one. Each has a producerEventId of its own, made
of the fence (which no other attempt shares) and a counter, so a batch that arrives twice is stored once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from waystation_worker.content import Json, encode
from waystation_worker.errors import LeaseLost
from waystation_worker.lease import Receipt

MAX_EVENTS = 1000
"""Unacknowledged events that may wait, and the most in one request (native-api.md)."""
MAX_BYTES = 1024 * 1024
"""Unacknowledged bytes after which writers wait, and about the most in one request."""


class Send(Protocol):
    async def __call__(self, events: Sequence[bytes], /) -> Receipt: ...


class Outbox:
    """Takes a lease's events. ``ending`` is true once the event that ends the lease is on its way or acknowledged.

    ``heard`` is called with every receipt, ``lost`` once when the broker says that the lease has ended.
    """

    def __init__(
        self, fence: int, send: Send, *, heard: Callable[[Receipt], None], lost: Callable[[LeaseLost], None]
    ) -> None:
        self.ending = False
        self._fence = fence
        self._send = send
        self._heard = heard
        self._lost = lost
        self._count = 0
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    async def put(self, event: Json) -> None:
        """Takes one event; waits while too much is unacknowledged.

        Raises what an earlier event met: LeaseLost for good, BrokerRefused once (the events that waited are dropped).
        """
        self._count += 1
        encoded = encode({"producerEventId": f"{self._fence}-{self._count}", **event})
        while len(self._waiting) >= MAX_EVENTS or self._bytes >= MAX_BYTES:
            await self._change()
        self._raise_failure()
        self._waiting.append(encoded)
        self._bytes += len(encoded)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all(), name="outbox")

    async def flush(self) -> None:
        """Waits until everything is acknowledged; raises like put()."""
        while self._waiting and self._failure is None:
            await self._change()
        self._raise_failure()

    async def finish(self, event: Json) -> None:
        """Writes the event that ends the lease, and waits for its receipt. After a refusal the lease goes on."""
        self.ending = True
        try:
            await self.put(event)
            await self.flush()
        except BaseException:
            self.ending = False
            raise

    def close(self, lost: LeaseLost) -> None:
        """Nothing more is sent, from this moment on; writers get ``lost``."""
        self._failure = lost
        self._drop()
        if self._sender is not None:
            self._sender.cancel()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                receipt = await self._send(batch)
                for event in batch:
                    self._waiting.popleft()
                    self._bytes -= len(event)
                self._heard(receipt)
                self._notify()
        except LeaseLost as lost:
            self._failure = lost
            self._drop()
            self._lost(lost)
        except Exception as error:  # given to the next writer, whatever it is
            self._failure = error
            self._drop()
        finally:
            self._sender = None

    def _next_batch(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        for event in self._waiting:
            if batch and (len(batch) == MAX_EVENTS or size + len(event) > MAX_BYTES):
                break
            batch.append(event)
            size += len(event)
        return batch

    def _drop(self) -> None:
        self._waiting.clear()
        self._bytes = 0
        self._notify()

    def _raise_failure(self) -> None:
        failure = self._failure
        if failure is None:
            return
        if not isinstance(failure, LeaseLost):
            self._failure = None
        raise failure

    async def _change(self) -> None:
        await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
