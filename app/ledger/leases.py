"""Leases: the right of one worker to write one task. Called by the claim loops, the worker routes and the reaper."""

import math
from collections.abc import Sequence
from typing import LiteralString

from app.ledger.inputs import ClaimLimits, LeaseKey
from app.ledger.pool import Database, Record
from app.ledger.rows import Claimed, Due, HeartbeatResult, QueueFigures
from app.protocol.states import TaskState

CLAIM: LiteralString = "SELECT * FROM lease_claim($1, $2, $3, $4, $5, $6, $7)"
HELD: LiteralString = "SELECT * FROM lease_held($1, $2, $3)"
HEARTBEAT: LiteralString = "SELECT * FROM lease_heartbeat($1, $2, $3, $4)"
DUE: LiteralString = "SELECT * FROM lease_due($1, $2)"
QUEUE_FIGURES: LiteralString = "SELECT * FROM queue_figures()"

NO_LIMITS = ClaimLimits()


async def claim(
    db: Database,
    *,
    agent_id: str,
    worker_id: str,
    limit: int,
    lease_seconds: float | None,
    claim_id: str | None,
    limits: ClaimLimits = NO_LIMITS,
) -> list[Claimed]:
    """Lease up to ``limit`` ready tasks, of all tenants, fairly by lane; no two claimers ever get the same task.

    ``lease_seconds`` None takes each task's own; ``claim_id`` lets ``held`` find these leases again; ``limits`` are
    never exceeded by claims that are given the same, whichever replica makes them. Raises Unavailable.
    """
    rows = await db.fetch(CLAIM, agent_id, worker_id, limit, lease_seconds, claim_id, limits.in_all, limits.per_tenant)
    return [_claimed(row) for row in rows]


async def held(db: Database, *, agent_id: str, worker_id: str, claim_id: str) -> list[Claimed]:
    """The leases that an earlier claim with this ``claim_id`` made and that still live."""
    return [_claimed(row) for row in await db.fetch(HELD, agent_id, worker_id, claim_id)]


def _claimed(row: Record) -> Claimed:
    return Claimed(
        tenant=row["tenant_id"],
        task_id=row["task_id"],
        agent_id=row["agent_id"],
        context_id=row["context_id"],
        fence=row["fence"],
        attempt=row["attempt"],
        turn=row["turn_no"],
        priority=row["priority"],
        claimed_at=row["claimed_at"],
        queued_at=row["queued_at"],
        expires_at=row["expires_at"],
        deadline_at=row["deadline_at"],
        last_seq=row["last_seq"],
        message_body=row["message_body"],
    )


async def heartbeat(db: Database, leases: Sequence[LeaseKey], extend_seconds: float | None) -> list[HeartbeatResult]:
    """Extend leases from now by ``extend_seconds`` (None: as long as they were made for; 0: only look); results in the
    same order.

    A lease lives until it is ended or reaped, so a late heartbeat revives one whose clock has passed. Raises
    Unavailable.
    """
    order = sorted(range(len(leases)), key=lambda i: (leases[i].tenant.encode(), leases[i].task_id.int))
    rows = await db.fetch(
        HEARTBEAT,
        [leases[i].tenant for i in order],
        [leases[i].task_id for i in order],
        [leases[i].fence for i in order],
        extend_seconds,
    )
    results = {i: _beat(row) for i, row in zip(order, rows, strict=True)}
    return [results[i] for i in range(len(leases))]


def _beat(row: Record) -> HeartbeatResult:
    state = row["state"]
    return HeartbeatResult(row["ok"], row["expires_at"], row["signal"], None if state is None else TaskState(state))


async def due(db: Database, limit: int, healthy_seconds: float = math.inf) -> list[Due]:
    """Leases, cancel graces, deadlines and queue time-outs that have passed; to be ended by ``transitions.end_due``.

    ``healthy_seconds`` is for how long PostgreSQL has been reachable: no lease that is longer has expired. PostgreSQL's
    own start is seen by itself. Raises Unavailable.
    """
    rows = await db.fetch(DUE, limit, healthy_seconds)
    return [Due(row["tenant_id"], row["task_id"], row["fence"], row["kind"]) for row in rows]


async def queue_figures(db: Database) -> list[QueueFigures]:
    """Depth, delayed, running and the oldest age of each agent that has live work."""
    rows = await db.fetch(QUEUE_FIGURES)
    return [
        QueueFigures(row["agent_id"], row["depth"], row["delayed"], row["running"], row["oldest_age_seconds"])
        for row in rows
    ]
