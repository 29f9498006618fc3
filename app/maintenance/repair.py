"""Queues live tasks again that have neither queue row nor lease. No transition leaves such a task behind: whatever is
found here is the trace of a fault, so it is told (known faults of other brokers: aegra#476)."""

import logging

from app import metrics
from app.ledger import repairs, tenants
from app.ledger.pool import Database
from app.ledger.wakeups import Wakeups, lease_key, queue_key
from app.loops import Loop, LoopConfig

log = logging.getLogger("waystation.repair")

OLDER_SECONDS = 60.0


class Repair(Loop):
    """Walks all tenants once a minute. ``older_seconds``: younger statuses are left to the next walk, for nearly all
    tasks move on within that time."""

    def __init__(
        self, db: Database, wakeups: Wakeups, older_seconds: float = OLDER_SECONDS, interval: float = 60.0
    ) -> None:
        super().__init__("repair", LoopConfig(interval, max_backoff=60.0))
        self._db = db
        self._wakeups = wakeups
        self._older_seconds = older_seconds

    async def run_once(self) -> bool:
        async for page in tenants.pages(self._db):
            for tenant in page:
                async for task in repairs.repair(self._db, tenant=tenant, older_seconds=self._older_seconds):
                    log.warning("task %s stood in no queue and was held by nobody: queued again", task.task_id)
                    metrics.TASKS_REPAIRED.inc()
                    self._wakeups.bump(queue_key(task.agent_id))
                    self._wakeups.bump(lease_key(tenant, task.task_id))
        return False
