"""A lease as workers see it: the leaseId, the task, and the message that started this turn (native-api.md, Workers)."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Literal, cast
from uuid import UUID

from app.auth.handles import Handles
from app.errors import NotFound, Unavailable
from app.ledger import tasks
from app.ledger.inputs import LeaseKey
from app.ledger.pool import Database
from app.ledger.rows import Claimed
from app.protocol import fold, strict_json
from app.protocol.events import RESUME_EXTENSION
from app.protocol.models import format_timestamp
from app.protocol.states import TaskState

log = logging.getLogger("waystation.leasing")

LEASE_KIND: Final = "lease"
LEASE_FIELDS: Final = 7
LIGHT_MESSAGES: Final = 20
READS_AT_ONCE: Final = 4
EVENTS_OF_FIRST_CLAIM: Final = 3
"""task.submitted, turn.started and the claim's own WORKING (native-api.md, What each transition appends)."""

TaskView = Literal["light", "full"]
JsonObject = dict[str, Any]


class HeldLease:
    """What a leaseId says: which lease of which agent's task, which attempt it is, held by which worker.

    ``limited``: its agent's leases are limited in number, so the end of one lets another begin.
    """

    __slots__ = ("agent_id", "attempt", "context_id", "key", "limited", "worker_id")

    def __init__(self, key: LeaseKey, agent_id: str, context_id: str, attempt: int, worker_id: str) -> None:
        self.key = key
        self.agent_id = agent_id
        self.context_id = context_id
        self.attempt = attempt
        self.worker_id = worker_id
        self.limited = False


def seal_lease(handles: Handles, claimed: Claimed, worker_id: str) -> str:
    """The leaseId: opaque, URL-safe, signed, and it carries the fence."""
    about = [claimed.tenant, str(claimed.task_id), claimed.agent_id, claimed.context_id]
    return handles.seal(LEASE_KIND, [*about, claimed.fence, claimed.attempt, worker_id])


def open_lease(handles: Handles, lease_id: str) -> HeldLease:
    """What was sealed. Raises NotFound for anything else."""
    payload = handles.open(LEASE_KIND, lease_id)
    if payload is None or len(payload) != LEASE_FIELDS:  # one of an older release has other fields
        raise NotFound
    tenant, task_id, agent_id, context_id, fence, attempt, worker_id = cast(
        "tuple[str, str, str, str, int, int, str]", payload
    )
    return HeldLease(LeaseKey(tenant, UUID(task_id), fence), agent_id, context_id, attempt, worker_id)


async def describe(
    db: Database, handles: Handles, claimed: Sequence[Claimed], *, worker_id: str, view: TaskView
) -> list[JsonObject | None]:
    """The leases as JSON objects, in order; None for one whose task cannot be read. Raises Unavailable."""
    reads = asyncio.Semaphore(READS_AT_ONCE)

    async def one(lease: Claimed) -> JsonObject:
        body = cast("JsonObject", strict_json.loads_trusted(lease.message_body))
        task = _first_attempt(lease, body)
        if task is None:
            async with reads:
                loaded = await tasks.load(db, lease.tenant, lease.task_id)
            task = {} if loaded is None else loaded.task
        if view == "light":
            task = fold.view(task, history_length=LIGHT_MESSAGES, include_artifacts=False)
        return _lease(lease, seal_lease(handles, lease, worker_id), task, body)

    async def guarded(lease: Claimed) -> JsonObject | None:
        try:
            return await one(lease)
        except Unavailable:
            raise
        except Exception:
            log.exception("task %s cannot be read for its lease", lease.task_id)
            return None

    return list(await asyncio.gather(*(guarded(lease) for lease in claimed)))


def _first_attempt(lease: Claimed, body: JsonObject) -> JsonObject | None:
    """The Task without reading it, where nothing has happened but its submit and this claim: nearly always."""
    if lease.last_seq != EVENTS_OF_FIRST_CLAIM or "task" not in body:
        return None
    status = {"state": TaskState.WORKING.wire, "timestamp": format_timestamp(lease.claimed_at)}
    about = {RESUME_EXTENSION: {"turn": lease.turn, "attempt": lease.attempt}}
    return {**body["task"], "status": status, "metadata": about}


def _lease(lease: Claimed, lease_id: str, task: JsonObject, body: JsonObject) -> JsonObject:
    message = body["message"] if "message" in body else body["task"]["history"][0]
    shown: JsonObject = {
        "leaseId": lease_id,
        "taskId": str(lease.task_id),
        "tenant": lease.tenant,
        "contextId": lease.context_id,
        "fence": lease.fence,
        "attempt": lease.attempt,
        "turn": lease.turn,
        "priority": lease.priority,
        "queuedAt": format_timestamp(lease.queued_at),
        "expiresAt": format_timestamp(lease.expires_at),
        "lastSeq": lease.last_seq,
        "task": task,
        "message": message,
        "priorMessages": [],
        "answers": [],
        "effects": [],
    }
    if (trace := _trace(message.get("metadata", {}))) is not None:
        shown["traceparent"] = trace
    if lease.deadline_at is not None:
        shown["deadlineAt"] = format_timestamp(lease.deadline_at)
    return shown


def _trace(metadata: JsonObject) -> str | None:
    """The trace that the message was sent in: its request's header, else what its sender wrote into it."""
    by_header: object = metadata.get(RESUME_EXTENSION)
    found = cast("JsonObject", by_header).get("traceparent") if isinstance(by_header, dict) else None
    trace = found or metadata.get("traceparent")
    return trace if isinstance(trace, str) else None
