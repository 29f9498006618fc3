"""Many readers of one log, one query. Used by ``log_reader``: a thousand subscribers of a task are woken at once."""

import asyncio
from uuid import UUID

from app.ledger import events
from app.ledger.pool import Database
from app.ledger.rows import EventPage

Place = tuple[str, UUID, int, int]
"""Tenant, task, the seq after which to read, the limit."""


class SharedReads:
    """Reads at the same place that are asked for while one is under way share the next one.

    They never join the one under way: it may have begun before the commit that the asker was woken for.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._running: dict[Place, asyncio.Task[EventPage | None]] = {}
        self._next: dict[Place, asyncio.Task[EventPage | None]] = {}

    async def read(self, tenant: str, task_id: UUID, after: int, limit: int) -> EventPage | None:
        """As ``ledger.events.read``: everything that was committed when this was called. Raises Unavailable."""
        place = (tenant, task_id, after, limit)
        running = self._running.get(place)
        if running is None:
            task = self._running[place] = asyncio.create_task(self._read(place))
        elif (waiting := self._next.get(place)) is not None:
            return await asyncio.shield(waiting)
        else:
            task = self._next[place] = asyncio.create_task(self._read_after(running, place))
        task.add_done_callback(_retrieve)
        # shielded: a reader that goes away must not take the others' answer with it
        return await asyncio.shield(task)

    async def _read(self, place: Place) -> EventPage | None:
        try:
            return await events.read(self._db, *place)
        finally:
            if self._running.get(place) is asyncio.current_task():
                del self._running[place]

    async def _read_after(self, running: asyncio.Task[EventPage | None], place: Place) -> EventPage | None:
        await asyncio.wait((running,))
        self._running[place] = self._next.pop(place)
        return await self._read(place)


def _retrieve(task: asyncio.Task[EventPage | None]) -> None:
    """An error is nobody's when all its readers have gone; looking at it keeps asyncio from complaining."""
    if not task.cancelled():
        task.exception()
