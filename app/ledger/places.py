"""Where a waiting task stands. Called by the operations that show one task."""

from typing import LiteralString
from uuid import UUID

from app.ledger.pool import Database

MAX_POSITION = 1001
"""Places further back are shown as this one."""

POSITION: LiteralString = "SELECT queue_position($1, $2, $3) AS position"


async def position(db: Database, tenant: str, task_id: UUID) -> int | None:
    """1 for the next task of its lane (tenant and fairKey) to be claimed; None when it does not wait. Raises
    Unavailable."""
    return (await db.call(POSITION, tenant, task_id, MAX_POSITION - 1))["position"]
