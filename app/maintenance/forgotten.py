"""Cancels tasks that have waited for input so long that nobody will come back: they would pin the log's partitions."""

from app import metrics
from app.ledger import tenants, transitions
from app.ledger.pool import Database
from app.ledger.wakeups import Wakeups, task_key
from app.loops import Loop, LoopConfig
from app.protocol.states import TaskState

PAUSED_SECONDS = 30 * 86400.0
PAGE = 100


class Forgotten(Loop):
    """``older_seconds``: how long a task may wait for its client (ledger.md, Tables)."""

    def __init__(
        self, db: Database, wakeups: Wakeups, older_seconds: float = PAUSED_SECONDS, interval: float = 3600.0
    ) -> None:
        super().__init__("forgotten", LoopConfig(interval, max_backoff=60.0))
        self._db = db
        self._wakeups = wakeups
        self._older_seconds = older_seconds

    async def run_once(self) -> bool:
        more = False
        async for page in tenants.pages(self._db):
            for tenant in page:
                ended = await transitions.forget(self._db, tenant=tenant, older_seconds=self._older_seconds, limit=PAGE)
                for task_id in ended:
                    metrics.count_transition(TaskState.CANCELED, task_id)
                    self._wakeups.bump(task_key(tenant, task_id))
                more |= len(ended) == PAGE
        return more
