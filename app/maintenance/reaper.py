"""The reaper: ends leases, cancel graces, deadlines and queue time-outs that have passed.

One in every replica, without a leader: each end is one conditional transaction, so two reapers never end one thing
twice.
"""

import asyncio
import logging

from app import metrics
from app.errors import Unavailable
from app.ledger import leases, transitions
from app.ledger.pool import Database
from app.ledger.rows import Due
from app.ledger.wakeups import Wakeups, lease_key, task_key
from app.loops import Loop, LoopConfig
from app.maintenance.pulse import Pulse
from app.protocol.states import TaskState

log = logging.getLogger("waystation.reaper")

PAGE = 100
AT_ONCE = 4


class Reaper(Loop):
    """Runs at least once a second, jittered. It expires no lease that could not be kept because PostgreSQL was away."""

    def __init__(self, db: Database, wakeups: Wakeups, pulse: Pulse, interval: float = 1.0) -> None:
        super().__init__("reaper", LoopConfig(interval, max_backoff=1.0))
        self._db = db
        self._wakeups = wakeups
        self._pulse = pulse

    async def run_once(self) -> bool:
        due = await leases.due(self._db, PAGE, self._pulse.healthy_seconds())
        gate = asyncio.Semaphore(AT_ONCE)

        async def end(item: Due) -> bool:
            async with gate:
                return await self._end(item)

        ended = await asyncio.gather(*(end(item) for item in due))
        # a page of rows that cannot be ended must not be tried again at once
        return len(due) >= PAGE and any(ended)

    async def _end(self, due: Due) -> bool:
        try:
            outcome = await transitions.end_due(self._db, due)
        except Unavailable:
            raise
        except Exception:
            log.exception("the reaper could not end %s of task %s", due.kind, due.task_id)
            return False
        if outcome is None:
            return False
        if due.kind == "expired":
            metrics.LEASE_EXPIRIES.inc()
        if outcome.state is not TaskState.WORKING:
            metrics.count_transition(outcome.state, due.task_id)
        self._wakeups.bump(task_key(due.tenant, due.task_id))
        self._wakeups.bump(lease_key(due.tenant, due.task_id))
        return True
