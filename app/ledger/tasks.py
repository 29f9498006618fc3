"""Reading tasks: one, a page, or just the row. Content is the fold of the events; a snapshot keeps that cheap."""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from app.errors import Unavailable
from app.ledger.pool import Database, Record
from app.ledger.rows import FirstWord, JsonObject, LoadedTask, TaskHead, TaskPage, Turn
from app.protocol import fold
from app.protocol.states import TaskState
from app.protocol.strict_json import dumps, loads_trusted

SNAPSHOT_EVERY = 64
"""A reader that folds more events than this keeps the result, so that the next one need not."""
TOTAL_BOUND = 10_000
"""ListTasks counts exactly up to here."""
EVENTS_AT_ONCE = 5000
"""A list reads the logs of so many of its tasks in one statement as have no more events together."""
PAGE_BYTES = 16 * 1024 * 1024
"""Contents are as large as clients and workers make them: a page that would bring more into memory ends sooner."""

READ: LiteralString = "SELECT * FROM task_read($1, $2)"
HEAD: LiteralString = "SELECT * FROM task_head($1, $2)"
TURN: LiteralString = "SELECT * FROM turn_read($1, $2, $3)"
FIRST_WORD: LiteralString = "SELECT * FROM turn_first_word($1, $2, $3)"
TURNS: LiteralString = """
SELECT turn_no, state FROM turns WHERE tenant_id = $1 AND task_id = $2 AND turn_no > $3 ORDER BY turn_no LIMIT $4"""
KEEP: LiteralString = "SELECT snapshot_keep($1, $2, $3, $4)"
LIST: LiteralString = """
SELECT task_id, last_seq FROM tasks
 WHERE tenant_id = $1 AND ($2::text IS NULL OR agent_id = $2) AND ($3::text IS NULL OR context_id = $3)
   AND ($4::smallint IS NULL OR state = $4) AND ($5::timestamptz IS NULL OR status_at >= $5)
   AND ($6::timestamptz IS NULL OR status_at <= $6 AND (status_at < $6 OR task_id > $7))
 ORDER BY status_at DESC, task_id LIMIT $8"""
CONTENTS: LiteralString = """
SELECT * FROM (
  SELECT listed.*, content.*, sum(coalesce(octet_length(content.snapshot), 0)
      + (SELECT coalesce(sum(octet_length(body)), 0) FROM unnest(content.bodies) body)) OVER (ORDER BY place) AS bytes
    FROM unnest($2::uuid[]) WITH ORDINALITY listed(task_id, place)
    CROSS JOIN LATERAL task_read($1, listed.task_id) content) found
 WHERE place = 1 OR bytes <= $3 ORDER BY place"""
COUNT: LiteralString = """
SELECT count(*) AS total FROM (SELECT 1 FROM tasks
 WHERE tenant_id = $1 AND ($2::text IS NULL OR agent_id = $2) AND ($3::text IS NULL OR context_id = $3)
   AND ($4::smallint IS NULL OR state = $4) AND ($5::timestamptz IS NULL OR status_at >= $5) LIMIT $6) counted"""


async def head(db: Database, tenant: str, task_id: UUID) -> TaskHead | None:
    """The task's row and its place in the queue; None for an unknown or a foreign id. Raises Unavailable."""
    row = await db.fetchrow(HEAD, tenant, task_id)
    return None if row is None else _head(tenant, task_id, row)


async def load(db: Database, tenant: str, task_id: UUID) -> LoadedTask | None:
    """The task as of one point of the log: ``task`` is the fold of events 1..``head.last_seq``. Raises Unavailable."""
    row = await db.fetchrow(READ, tenant, task_id)
    return None if row is None else await _content(db, tenant, task_id, row)


async def _content(db: Database, tenant: str, task_id: UUID, row: Record) -> LoadedTask:
    loaded = _fold(tenant, task_id, row)
    if row["kinds"] is not None and len(row["kinds"]) > SNAPSHOT_EVERY:
        with contextlib.suppress(Unavailable):  # what was read is whole without it
            await db.call(KEEP, tenant, task_id, loaded.head.last_seq, dumps(loaded.task))
    return loaded


def _fold(tenant: str, task_id: UUID, row: Record) -> LoadedTask:
    task: JsonObject | None = None if row["snapshot"] is None else loads_trusted(row["snapshot"])
    tail = zip(row["kinds"] or (), map(loads_trusted, row["bodies"] or ()), strict=True)
    return LoadedTask(_head(tenant, task_id, row), fold.fold(tail, task))


def _head(tenant: str, task_id: UUID, row: Record) -> TaskHead:
    return TaskHead(
        tenant=tenant,
        task_id=task_id,
        agent_id=row["agent_id"],
        context_id=row["context_id"],
        state=TaskState(row["state"]),
        fence=row["fence"],
        attempt=row["attempt"],
        turn=row["turn_no"],
        turns_queued=row["turns_queued"],
        last_seq=row["last_seq"],
        terminal_seq=row["terminal_seq"],
        status_at=row["status_at"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        worker_id=row["worker"],
        lease_until=row["lease_until"],
        run_at=row["run_at"],
        priority=row["priority"],
    )


async def turn(db: Database, tenant: str, task_id: UUID, turn_no: int) -> Turn | None:
    """One turn's state now. Raises Unavailable."""
    row = await db.fetchrow(TURN, tenant, task_id, turn_no)
    return None if row is None else Turn(row["turn_no"], row["state"])


async def first_word(db: Database, tenant: str, task_id: UUID, turn_no: int) -> FirstWord | None:
    """What the worker of a turn said first. Raises Unavailable."""
    row = await db.fetchrow(FIRST_WORD, tenant, task_id, turn_no)
    if row is None:
        return None
    return FirstWord(row["open"], row["seq"], None if row["body"] is None else loads_trusted(row["body"]))


async def turns(db: Database, tenant: str, task_id: UUID, *, after: int = 0, limit: int | None = None) -> list[Turn]:
    """A task's turns after the turn ``after``, in order; empty for an unknown task. Raises Unavailable."""
    async with db.tenant(tenant) as connection:
        rows = await connection.fetch(TURNS, tenant, task_id, after, limit)
    return [Turn(row["turn_no"], row["state"]) for row in rows]


async def list_tasks(
    db: Database,
    tenant: str,
    *,
    agent_id: str | None = None,
    context_id: str | None = None,
    state: TaskState | None = None,
    after: datetime | None = None,
    cursor: tuple[datetime, UUID] | None = None,
    limit: int = 50,
) -> TaskPage:
    """A page by (status time descending, id). ``after`` is inclusive; ``cursor`` is the last task of the page before.

    ``total`` counts all that the filters admit, exactly up to ``TOTAL_BOUND``. A page has fewer than ``limit`` tasks
    where their contents would be more than about ``PAGE_BYTES``. Raises Unavailable.
    """
    filters = (tenant, agent_id, context_id, state, after)
    contents: list[Record] = []
    async with db.tenant(tenant, snapshot=True) as connection:  # the page's last task says where the next one begins
        rows = await connection.fetch(LIST, *filters, *(cursor or (None, None)), limit + 1)
        counted = await connection.fetchrow(COUNT, *filters, TOTAL_BOUND + 1)
        room = PAGE_BYTES
        for task_ids in _batches(rows[:limit]):
            found = await connection.fetch(CONTENTS, tenant, task_ids, room)
            contents += found
            room -= int(found[-1]["bytes"])
            if len(found) < len(task_ids) or room <= 0:
                break
    total = int(counted["total"]) if counted else 0
    return TaskPage(
        tasks=[await _content(db, tenant, row["task_id"], row) for row in contents],
        total=min(total, TOTAL_BOUND),
        total_capped=total > TOTAL_BOUND,
        more=len(rows) > len(contents),
    )


def _batches(rows: Sequence[Record]) -> Iterator[list[UUID]]:
    """The listed tasks' ids in order; a task with more than EVENTS_AT_ONCE is a batch of its own."""
    batch: list[UUID] = []
    events = 0
    for row in rows:
        if batch and events + row["last_seq"] > EVENTS_AT_ONCE:
            yield batch
            batch, events = [], 0
        batch.append(row["task_id"])
        events += row["last_seq"]
    if batch:
        yield batch
