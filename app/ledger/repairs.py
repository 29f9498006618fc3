"""Live tasks that stand in no queue and are held by nobody (aegra#476): none can arise, and each is repaired.

Called by ``maintenance.repair``.
"""

from collections.abc import AsyncGenerator
from typing import LiteralString

from app.ledger.pool import Database
from app.ledger.rows import Repaired
from app.protocol.states import TaskState

TASKS_PER_PAGE = 1000

REPAIR: LiteralString = "SELECT * FROM tasks_repair($1, $2, $3, $4, $5, $6)"


async def repair(db: Database, *, tenant: str, older_seconds: float) -> AsyncGenerator[Repaired]:
    """Queue a tenant's lost tasks again, the attempt not counted; yields each of them.

    Looks page by page through all live tasks whose status is older than ``older_seconds``. Raises Unavailable.
    """
    for state in (TaskState.SUBMITTED, TaskState.WORKING):
        at, task_id = None, None
        while True:
            row = await db.call(REPAIR, tenant, state, older_seconds, TASKS_PER_PAGE, at, task_id)
            for repaired, agent_id in zip(row["p_tasks"], row["p_agents"], strict=True):
                yield Repaired(repaired, agent_id)
            at, task_id = row["p_at"], row["p_id"]
            if at is None:
                break
