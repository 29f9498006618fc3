"""The agents table: who answers for an id, with which settings. Ids are unique in the deployment, like host names.

Readable by all; written only by the owner's tenant. A deleted agent stays as a tombstone: its id never becomes another
tenant's, and a lease of it still gets its true answer. Called by ``operations.agents`` and ``ledger.directory``.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import LiteralString, cast
from uuid import UUID

from app.ledger import tenants, transitions
from app.ledger.pool import Database, Record
from app.ledger.rows import Agent, JsonObject
from app.protocol import strict_json

TASKS_PER_PAGE = 500

GET: LiteralString = """
SELECT agent_id, tenant_id, config, shared_with, revision, updated_at, deleted_at IS NOT NULL AS deleted
  FROM agents WHERE agent_id = $1"""

INSERT: LiteralString = """
INSERT INTO agents (agent_id, tenant_id, config, shared_with, revision, created_at, updated_at)
VALUES ($2, $1, $3, $4, 1, date_trunc('milliseconds', clock_timestamp()), date_trunc('milliseconds', clock_timestamp()))
ON CONFLICT (agent_id) DO NOTHING
RETURNING agent_id, tenant_id, config, shared_with, revision, updated_at, deleted_at IS NOT NULL AS deleted"""

REPLACE: LiteralString = """
UPDATE agents SET config = $3, shared_with = $4, revision = revision + 1, deleted_at = NULL,
       updated_at = date_trunc('milliseconds', clock_timestamp())
 WHERE tenant_id = $1 AND agent_id = $2 AND revision = $5
RETURNING agent_id, tenant_id, config, shared_with, revision, updated_at, deleted_at IS NOT NULL AS deleted"""

DELETE: LiteralString = """
UPDATE agents SET deleted_at = date_trunc('milliseconds', clock_timestamp()), revision = revision + 1
 WHERE tenant_id = $1 AND agent_id = $2 AND deleted_at IS NULL
RETURNING agent_id"""

LIST: LiteralString = """
SELECT agent_id, tenant_id, config, shared_with, revision, updated_at, false AS deleted
  FROM agents
 WHERE agent_id > $2 AND deleted_at IS NULL AND (tenant_id = $1 OR shared_with && ARRAY['*', $1])
 ORDER BY agent_id LIMIT $3"""

TOMBSTONES: LiteralString = """
SELECT agent_id FROM agents WHERE deleted_at > clock_timestamp() - make_interval(secs => $1) ORDER BY agent_id"""

LIVE_TASKS: LiteralString = """
SELECT tenant_id, task_id FROM tasks
 WHERE tenant_id = ANY($1) AND agent_id = $2 AND state IN (1, 2, 6, 8) AND (tenant_id, task_id) > ($3, $4)
 ORDER BY tenant_id, task_id LIMIT $5"""


@dataclass(frozen=True, slots=True)
class AgentTaken:
    """The id belongs to another tenant, or did before it was deleted there."""


@dataclass(frozen=True, slots=True)
class RevisionMismatch:
    """The precondition failed: the agent's revision is another one (None: there is no such agent now)."""

    revision: int | None


@dataclass(frozen=True, slots=True)
class LiveTasks:
    """The agent has live tasks, so it was not deleted."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The agent is a tombstone now; what it left behind has still to be failed (``fail_live_tasks``)."""


async def get(db: Database, agent_id: str) -> Agent | None:
    """The agent, a tombstone (``deleted``) included; None for an id that was never registered."""
    row = await db.fetchrow(GET, agent_id)
    return None if row is None else to_agent(row)


async def put(
    db: Database,
    *,
    tenant: str,
    agent_id: str,
    config: JsonObject,
    shared_with: Collection[str],
    holds: Callable[[int | None], bool],
) -> Agent | AgentTaken | RevisionMismatch:
    """Create or replace, if the precondition ``holds`` for the revision that stands there now (None: no such agent).

    The revision grows with every change, deletion included, so it never comes again.
    """
    text = strict_json.dumps(config)
    shared = sorted(shared_with)
    while True:
        async with db.tenant(tenant) as connection:
            row = await connection.fetchrow(GET, agent_id)
            if row is not None and row["tenant_id"] != tenant:
                return AgentTaken()
            current = None if row is None or row["deleted"] else int(row["revision"])
            if not holds(current):
                return RevisionMismatch(current)
            if row is None:
                row = await connection.fetchrow(INSERT, tenant, agent_id, text, shared)
            else:
                row = await connection.fetchrow(REPLACE, tenant, agent_id, text, shared, row["revision"])
        if row is not None:
            return to_agent(row)
        # somebody else was faster: judge what stands there now


async def list_visible(db: Database, tenant: str, *, after: str, limit: int) -> list[Agent]:
    """The tenant's own agents and those shared with it, by id, after the id ``after``."""
    return [to_agent(row) for row in await db.fetch(LIST, tenant, after, limit)]


async def delete(db: Database, *, tenant: str, agent_id: str, force: bool) -> Deleted | LiveTasks | None:
    """Make the tenant's agent a tombstone; None when it has no such agent.

    Without ``force`` only while it has no live task. A message that was admitted just before may still arrive after;
    maintenance fails what is found then.
    """
    async with db.tenant(tenant) as connection:
        row = await connection.fetchrow(GET, agent_id)
        if row is None or row["tenant_id"] != tenant or row["deleted"]:
            return None
    if not force:
        async with aclosing(live_tasks(db, agent_id)) as pages:
            async for _ in pages:
                return LiveTasks()
    async with db.tenant(tenant) as connection:
        deleted = await connection.fetchrow(DELETE, tenant, agent_id)
    return None if deleted is None else Deleted()


async def live_tasks(db: Database, agent_id: str) -> AsyncGenerator[list[tuple[str, UUID]]]:
    """Pages of (tenant, task id), none of them empty: the agent's tasks, of all tenants, that are not terminal yet."""
    async for page in tenants.pages(db):
        seen = ("", UUID(int=0))
        while True:
            async with db.tenant(*page) as connection:
                rows = await connection.fetch(LIVE_TASKS, page, agent_id, *seen, TASKS_PER_PAGE)
            if not rows:
                break
            found = [(str(row["tenant_id"]), cast("UUID", row["task_id"])) for row in rows]
            yield found
            seen = found[-1]


async def fail_live_tasks(db: Database, agent_id: str) -> AsyncGenerator[tuple[str, UUID]]:
    """Fail what a deleted agent has left behind, for the reason AGENT_DELETED; yields (tenant, task id) of each."""
    async for page in live_tasks(db, agent_id):
        for tenant, task_id in page:
            if await transitions.fail_deleted(db, tenant=tenant, task_id=task_id):
                yield tenant, task_id


async def tombstones(db: Database, younger_than: float) -> list[str]:
    """The agents deleted within the last ``younger_than`` seconds."""
    return [str(row["agent_id"]) for row in await db.fetch(TOMBSTONES, younger_than)]


def to_agent(row: Record) -> Agent:
    """The agent that a row of this table is."""
    return Agent(
        agent_id=row["agent_id"],
        tenant=row["tenant_id"],
        config=cast("JsonObject", strict_json.loads_trusted(row["config"])),
        revision=row["revision"],
        updated_at=row["updated_at"],
        deleted=row["deleted"],
        shared_with=frozenset(row["shared_with"]),
    )
