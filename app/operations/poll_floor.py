"""The floor under wake-ups: one query for all idle readers of this process, about every 2 s, instead of one for each.

A hint is lost when a replica dies between commit and NOTIFY; then its event is found here. Started by ``app.main``.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Protocol
from uuid import UUID

from app.ledger import events
from app.ledger.pool import Database
from app.loops import Loop, LoopConfig

READERS_PER_QUERY = 500


class Follower(Protocol):
    """An open reader of one task's log, which knows the log up to ``last_seq``."""

    tenant: str
    task_id: UUID
    last_seq: int
    incarnation: int

    def wake(self) -> None: ...

    def expire(self) -> None:
        """The database has another incarnation: cursors of the old one must be judged anew."""
        ...


class PollFloor(Loop):
    """Wakes followers whose log has grown unheard, and ends those of another incarnation."""

    def __init__(self, db: Database, poll_seconds: float) -> None:
        super().__init__("poll-floor", LoopConfig(interval=poll_seconds))
        self._db = db
        self._followers: set[Follower] = set()

    def add(self, follower: Follower) -> None:
        self._followers.add(follower)

    def remove(self, follower: Follower) -> None:
        self._followers.discard(follower)

    async def run_once(self) -> bool:
        if self._followers:
            incarnation = await events.incarnation(self._db)
            followers = iter(tuple(self._followers))
            while page := tuple(islice(followers, READERS_PER_QUERY)):
                await self._check(page, incarnation)
        return False

    async def _check(self, followers: Sequence[Follower], incarnation: int) -> None:
        last_seqs = await events.last_seqs(self._db, {(follower.tenant, follower.task_id) for follower in followers})
        for follower in followers:
            if follower.incarnation not in (0, incarnation):
                follower.expire()
            elif last_seqs.get((follower.tenant, follower.task_id)) != follower.last_seq:
                follower.wake()
