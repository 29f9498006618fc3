"""Fails tasks that were admitted while their agent was being deleted: nobody would ever lease them."""

from app import metrics
from app.ledger import agents
from app.ledger.pool import Database
from app.ledger.wakeups import Wakeups, lease_key, task_key
from app.loops import Loop, LoopConfig
from app.protocol.states import TaskState

LOOK_BACK_SECONDS = 900.0
"""Longer than a replica may go on admitting for a deleted agent (its cache: 1 s), and than most outages."""


class Orphans(Loop):
    """Looks again and again at the agents deleted of late."""

    def __init__(self, db: Database, wakeups: Wakeups, interval: float = 30.0) -> None:
        super().__init__("orphans", LoopConfig(interval, max_backoff=60.0))
        self._db = db
        self._wakeups = wakeups

    async def run_once(self) -> bool:
        for agent_id in await agents.tombstones(self._db, LOOK_BACK_SECONDS):
            async for tenant, task_id in agents.fail_live_tasks(self._db, agent_id):
                metrics.count_transition(TaskState.FAILED, task_id)
                self._wakeups.bump(task_key(tenant, task_id))
                self._wakeups.bump(lease_key(tenant, task_id))
        return False
