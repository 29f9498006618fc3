"""Follows one task's log: register for wake-ups, read, wait, read again; no connection is held while it waits.

Under every stream, A2A's and the native one. No queue per subscriber: a slow reader reads the ledger when it is ready.
"""

import asyncio
import time
from contextlib import ExitStack
from uuid import UUID

from app import metrics
from app.errors import Unavailable
from app.ledger import events
from app.ledger.rows import Event, EventPage
from app.ledger.wakeups import task_key
from app.operations.deps import Operations

BATCH_EVENTS = 100
OUTAGE_SECONDS = 0.5


class LogReader:
    """Reads after ``after``, which moves with what was read. ``close`` must be called, once or more.

    ``last_seq`` and ``terminal_seq`` are the log's bounds at the last read; ``ended`` means that nothing will follow:
    the terminal event was read, the task is gone, or the database has another incarnation since an outage.
    """

    def __init__(self, ops: Operations, tenant: str, task_id: UUID, after: int = 0) -> None:
        self.after = after
        self.last_seq = 0
        self.terminal_seq: int | None = None
        self.ended = False
        self.incarnation = 0
        self.tenant = tenant
        self.task_id = task_id
        self._ops = ops
        self._outage = False
        self._exit = ExitStack()
        self._signal = self._exit.enter_context(ops.wakeups.watch(task_key(tenant, task_id)))
        ops.floor.add(self)
        self._exit.callback(ops.floor.remove, self)

    def close(self) -> None:
        self._exit.close()

    def wake(self) -> None:
        self._signal.set()

    def expire(self) -> None:
        """The database has another incarnation: the reader ends, and its cursor is judged anew when it comes back."""
        self.ended = True
        self._signal.set()

    async def start(self) -> None:
        """Learn the incarnation that this reader's cursors name. Raises Unavailable."""
        self.incarnation = await events.incarnation(self._ops.db)

    async def read(self, limit: int = BATCH_EVENTS) -> EventPage | None:
        """The next page, which may be empty, and the log's bounds; None when there is no such task. Raises
        Unavailable."""
        page = await self._ops.reads.read(self.tenant, self.task_id, self.after, limit)
        if page is None:
            self.ended = True
            return None
        if page.events:
            self.after = page.events[-1].seq
        self.last_seq, self.terminal_seq = page.last_seq, page.terminal_seq
        self.ended |= page.terminal_seq is not None and self.after >= page.terminal_seq
        return page

    async def next(self, timeout: float) -> list[Event]:
        """What comes next, waiting up to ``timeout`` seconds for it; empty when nothing came, also during an outage.

        Never more than one batch. Suspends at least once, so a reader whose peer is gone cannot spin.
        """
        waited = self.after >= self.last_seq or self._outage
        if waited:
            await self._wait(timeout)
        try:
            if self._outage:
                await self._check_incarnation()
            page = None if self.ended else await self.read()
        except Unavailable:
            self._outage = True
            return []
        self._outage = False
        found = page.events if page else []
        if found and waited:
            metrics.EVENT_DELIVERY_SECONDS.observe(max(0.0, time.time() - found[-1].at.timestamp()))
        return found

    async def _wait(self, timeout: float) -> None:
        if self._outage:
            await asyncio.sleep(max(0.0, min(timeout, OUTAGE_SECONDS)))  # wake-ups are away too: look again soon
        else:
            await self._signal.wait(max(0.0, timeout))

    async def _check_incarnation(self) -> None:
        """After an outage this may be another database: then cursors of the old one must be judged anew."""
        if await events.incarnation(self._ops.db) != self.incarnation:
            self.ended = True
