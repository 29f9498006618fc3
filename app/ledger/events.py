"""Reading the log. Called by subscribers, replays and pages; a reader never holds a connection while it waits."""

from collections.abc import Collection
from typing import LiteralString
from uuid import UUID

from app.ledger.pool import Database, Record
from app.ledger.rows import Event, EventPage
from app.protocol.states import TaskState

READ: LiteralString = "SELECT * FROM events_read($1, $2, $3, $4, $5)"
LAST_SEQS: LiteralString = """
SELECT t.tenant_id, t.task_id, t.last_seq FROM unnest($1::text[], $2::uuid[]) AS asked(tenant_id, task_id)
  JOIN tasks t ON t.tenant_id = asked.tenant_id AND t.task_id = asked.task_id"""
INCARNATION: LiteralString = "SELECT incarnation FROM meta"

MIN_SEQ = 1
"""The oldest seq that every log still has: nothing is dropped before retention exists."""
BYTES_AT_ONCE = 4 * 1024 * 1024
"""Bodies are as large as workers make them: what one read may bring into memory, beside its last event."""


async def read(db: Database, tenant: str, task_id: UUID, after: int, limit: int) -> EventPage | None:
    """Up to ``limit`` events with seq > ``after``, in order, and the log's bounds at the same moment; None for no such
    task. Fewer where their bodies would be more than about ``BYTES_AT_ONCE``, but at least one. Raises Unavailable."""
    rows = await db.fetch(READ, tenant, task_id, after, limit, BYTES_AT_ONCE)
    if not rows:
        return None
    head = rows[0]
    return EventPage(
        events=[_event(row) for row in rows if row["seq"] is not None],
        last_seq=head["task_last_seq"],
        min_seq=MIN_SEQ,
        terminal_seq=head["task_terminal_seq"],
        state=TaskState(head["task_state"]),
    )


def _event(row: Record) -> Event:
    return Event(
        seq=row["seq"],
        kind=row["kind"],
        turn=row["turn_no"],
        attempt=row["attempt"],
        actor_kind=row["actor_kind"],
        actor_id=row["actor_id"],
        at=row["at"],
        body=row["body"],
    )


async def last_seqs(db: Database, tasks: Collection[tuple[str, UUID]]) -> dict[tuple[str, UUID], int]:
    """The last seq of each of these (tenant, task id) that exists, in one round trip. Raises Unavailable."""
    asked = sorted(tasks)
    async with db.tenant(*sorted({tenant for tenant, _ in asked})) as connection:
        rows = await connection.fetch(LAST_SEQS, [tenant for tenant, _ in asked], [task_id for _, task_id in asked])
    return {(row["tenant_id"], row["task_id"]): row["last_seq"] for row in rows}


async def incarnation(db: Database) -> int:
    """Which life of this database it is: a restored backup has a new one, so old cursors are told apart."""
    return int((await db.call(INCARNATION))["incarnation"])
