"""Leases for long-polling workers, whichever replica they come to. Called by ``transports.native.workers``.

A request waits in its agent's claim loop. Whoever cancels the waiting call has gone: the leases that were granted to it
meanwhile are released, the attempt not counted (native-api.md, Workers).
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from app import metrics
from app.auth.handles import Handles
from app.errors import Unavailable
from app.execution.claim_loop import ClaimLoop, Poller, Want
from app.execution.lease_view import JsonObject, TaskView, describe
from app.ledger import leases, transitions
from app.ledger.directory import AgentDirectory
from app.ledger.inputs import LeaseKey
from app.ledger.pool import Database
from app.ledger.rows import Claimed
from app.ledger.wakeups import Wakeups, lease_key, queue_key, task_key

log = logging.getLogger("waystation.leasing")

STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Granted:
    """Leases, and how the worker sees them. Whoever cannot hand ``shown`` over gives the leases back."""

    claimed: Sequence[Claimed] = ()
    shown: list[JsonObject] = field(default_factory=list[JsonObject])


class Leasing:
    """One per process. ``poll_seconds`` is how often a queue is looked at without a wake-up."""

    def __init__(
        self, db: Database, wakeups: Wakeups, directory: AgentDirectory, handles: Handles, *, poll_seconds: float
    ) -> None:
        self._db = db
        self._wakeups = wakeups
        self._directory = directory
        self._handles = handles
        self._poll_seconds = poll_seconds
        self._loops: dict[str, ClaimLoop] = {}
        self._releases: set[asyncio.Task[None]] = set()
        self._draining = False

    async def lease(self, agent_id: str, want: Want, *, wait_seconds: float, view: TaskView) -> Granted:
        """At most ``want.limit`` leases, as soon as there is one; none after ``wait_seconds`` or while draining.

        A repeat of a ``claim_id`` answers the leases of the first call that still live. Raises Unavailable while
        PostgreSQL is away.
        """
        claimed = await self._held(agent_id, want)
        if not claimed and not self._draining:
            claimed = await self._wait(agent_id, want, wait_seconds)
        try:
            views = await describe(self._db, self._handles, claimed, worker_id=want.worker_id, view=view)
        except BaseException:
            self.give_back(claimed)
            raise
        pairs = list(zip(claimed, views, strict=True))
        self._return([lease for lease, shown in pairs if shown is None], error="The task cannot be read")
        readable = [(lease, shown) for lease, shown in pairs if shown is not None]
        return Granted([lease for lease, _ in readable], [shown for _, shown in readable])

    async def _held(self, agent_id: str, want: Want) -> list[Claimed]:
        if want.claim_id is None:
            return []
        return await leases.held(self._db, agent_id=agent_id, worker_id=want.worker_id, claim_id=want.claim_id)

    async def _wait(self, agent_id: str, want: Want, wait_seconds: float) -> list[Claimed]:
        poller = Poller(want)
        self._loop_of(agent_id).add(poller, wait_seconds)
        metrics.POLLERS_WAITING.inc()
        try:
            return await poller.answer
        except asyncio.CancelledError:
            if not poller.answer.cancelled() and poller.answer.exception() is None:
                self.give_back(poller.answer.result())
            raise
        finally:
            metrics.POLLERS_WAITING.dec()

    def give_back(self, claimed: Sequence[Claimed]) -> None:
        """Release leases that nobody received, in the background; what cannot be released expires."""
        metrics.LEASES_GIVEN_BACK.inc(len(claimed))
        self._return(claimed)

    def _return(self, claimed: Sequence[Claimed], *, error: str | None = None) -> None:
        """With an ``error`` the attempt counts: a task that can never be shown must not come back for ever."""
        if claimed:
            task = asyncio.create_task(self._end(claimed, error), name="give-back")
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    def drain(self) -> None:
        """Grant no new leases; requests that wait are answered with none at once."""
        self._draining = True
        for loop in self._loops.values():
            loop.drain()

    async def stop(self) -> None:
        """Drain, end all loops, and let what was given back reach the ledger."""
        self.drain()
        await asyncio.gather(*(loop.stop() for loop in self._loops.values()))
        self._loops.clear()
        if self._releases:
            await asyncio.wait(self._releases, timeout=STOP_SECONDS)

    def _loop_of(self, agent_id: str) -> ClaimLoop:
        loop = self._loops.get(agent_id)
        if loop is None:
            loop = self._loops[agent_id] = ClaimLoop(
                agent_id,
                self._db,
                self._wakeups,
                self._directory,
                poll_seconds=self._poll_seconds,
                give_back=self.give_back,
            )
        return loop

    async def _end(self, claimed: Sequence[Claimed], error: str | None) -> None:
        for lease in claimed:
            key = LeaseKey(lease.tenant, lease.task_id, lease.fence)
            try:
                if error is None:
                    await transitions.release(self._db, lease=key, delay_seconds=None)
                else:
                    await transitions.retry(self._db, lease=key, error=error, delay_seconds=None)
            except Unavailable:
                log.warning("leases that nobody received could not be given back: they will expire")
                return
            self._wakeups.bump(task_key(lease.tenant, lease.task_id))
            self._wakeups.bump(lease_key(lease.tenant, lease.task_id))
            self._wakeups.bump(queue_key(lease.agent_id))
