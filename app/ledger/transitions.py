"""The writers of a task's course: messages, worker events, cancels, and the other ends of a lease.

Each function is one transaction, made by one SQL function (``app/ledger/sql``); the state itself is written in one
place, ``task_advance``, whose WHERE carries the prior state and the fence. Operations, execution and maintenance call.
"""

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

from app.errors import ArtifactClosed, ArtifactUnknown, InvalidTransition, ProducerEventConflict
from app.ledger.inputs import Keys, LeaseKey, NewEvent, TaskSettings
from app.ledger.pool import Database, Record, SqlRefusalError
from app.ledger.push_configs import NewPushConfig, TooManyConfigs, arguments
from app.ledger.rows import (
    AlreadyTerminal,
    Applied,
    Busy,
    Canceled,
    CancelPending,
    ContextMismatch,
    Due,
    IdempotencyClash,
    LeaseEnded,
    Sent,
    StaleLease,
    TaskMissing,
)
from app.protocol.states import TaskState

SUBMIT: LiteralString = """
SELECT * FROM task_submit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
  $21, $22, $23, $24)"""
SEND: LiteralString = """
SELECT * FROM task_send($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"""
APPEND: LiteralString = "SELECT * FROM task_append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
CANCEL: LiteralString = "SELECT * FROM task_cancel($1, $2, $3)"
RETURN: LiteralString = "SELECT * FROM lease_return($1, $2, $3, $4, $5, $6)"
END_DUE: LiteralString = "SELECT * FROM lease_end_due($1, $2, $3, $4)"
FAIL_DELETED: LiteralString = "SELECT task_fail_deleted($1, $2) AS outcome"
FORGET: LiteralString = "SELECT * FROM task_forget($1, $2, $3)"

_REFUSED_EVENTS = {
    "WS010": ArtifactUnknown,
    "WS011": ArtifactClosed,
    "WS012": InvalidTransition,
    "WS013": ProducerEventConflict,
}


async def submit(
    db: Database,
    *,
    tenant: str,
    subject: str,
    agent_id: str,
    context_id: str | None,
    message: str,
    keys: Keys,
    settings: TaskSettings,
    push_config: NewPushConfig | None = None,
) -> Sent | IdempotencyClash:
    """Make a task of a client's first message: SUBMITTED and queued, its event at seq 1; durable when this returns.

    ``message`` is the Message as JSON object text without taskId and contextId, which the ledger puts in; a
    ``context_id`` of None makes a new one. ``push_config`` hears of all events after that one. Raises Unavailable.
    """
    try:
        row = await db.call(
            SUBMIT,
            tenant,
            subject,
            agent_id,
            context_id,
            message,
            keys.message_id,
            keys.header,
            keys.request_hash,
            settings.max_attempts,
            settings.backoff_seconds,
            settings.max_backoff_seconds,
            settings.lease_seconds,
            settings.cancel_grace_seconds,
            settings.on_busy,
            settings.deadline_seconds,
            settings.queue_timeout_seconds,
            settings.priority,
            settings.fair_key,
            settings.delay_seconds,
            *arguments(push_config),
        )
    except SqlRefusalError:
        return IdempotencyClash()
    return _sent(row)


async def send(
    db: Database,
    *,
    tenant: str,
    subject: str,
    agent_id: str,
    task_id: UUID,
    context_id: str | None,
    message: str,
    keys: Keys,
    on_busy: str | None,
    push_config: NewPushConfig | None = None,
) -> Sent | IdempotencyClash | TaskMissing | ContextMismatch | Busy | AlreadyTerminal | TooManyConfigs:
    """Add a client's message to a task: it resumes an interrupted one, and queues a turn behind a live one.

    A duplicate is judged before everything else and answers its first sending. ``on_busy`` overrides the task's own
    rule ("enqueue" or "reject"). ``push_config`` is added to the task's, or replaces the one with its id. A refusal
    stores nothing. Raises Unavailable.
    """
    try:
        row = await db.call(
            SEND,
            tenant,
            subject,
            agent_id,
            task_id,
            context_id,
            message,
            keys.message_id,
            keys.header,
            keys.request_hash,
            on_busy,
            *arguments(push_config),
        )
    except SqlRefusalError as refusal:
        return _refused_message(refusal)
    return _sent(row)


def _sent(row: Record) -> Sent:
    return Sent(
        task_id=row["task_id"],
        context_id=row["context_id"],
        turn=row["turn_no"],
        state=TaskState(row["state"]),
        last_seq=row["last_seq"],
        replayed=row["replayed"],
    )


def _refused_message(
    refusal: SqlRefusalError,
) -> IdempotencyClash | TaskMissing | ContextMismatch | Busy | AlreadyTerminal | TooManyConfigs:
    match refusal.code:
        case "WS001":
            return IdempotencyClash()
        case "WS002":
            return TaskMissing()
        case "WS003":
            return ContextMismatch()
        case "WS004":
            return Busy()
        case "WS005":
            state, terminal_seq = refusal.detail.split()
            return AlreadyTerminal(TaskState(int(state)), int(terminal_seq))
        case "WS006":
            return TooManyConfigs()
        case _:
            raise refusal


async def append(
    db: Database, *, lease: LeaseKey, worker_id: str, events: Sequence[NewEvent]
) -> Applied | AlreadyTerminal | StaleLease | TaskMissing:
    """Store a worker's batch, all or nothing; a terminal or interrupting status (the last one) ends the lease.

    A batch that was stored before answers its old seqs, whatever has become of the lease. At least one event; no
    producerEventId twice; statuses before the last are WORKING (the caller has checked). Raises ArtifactUnknown,
    ArtifactClosed, InvalidTransition, ProducerEventConflict (``metadata["index"]``: which event), Unavailable.
    """
    try:
        row = await db.call(
            APPEND,
            lease.tenant,
            lease.task_id,
            lease.fence,
            worker_id,
            [event.kind for event in events],
            [event.producer_event_id for event in events],
            [event.body_hash or b"" for event in events],
            [event.state for event in events],
            [event.message for event in events],
            [event.metadata for event in events],
            [event.artifact for event in events],
            [event.artifact_id for event in events],
            [event.append for event in events],
            [event.last_chunk for event in events],
        )
    except SqlRefusalError as refusal:
        raise _REFUSED_EVENTS[refusal.code](metadata={"index": refusal.detail}) from None
    if row["outcome"] != "applied":
        return _lost(row)
    return Applied(
        seqs=row["seqs"],
        state=TaskState(row["state"]),
        last_seq=row["last_seq"],
        turn_ended=row["turn_ended"],
        lease_ended=row["lease_ended"],
        duplicates=row["duplicates"],
        signal=row["signal"],
    )


def _lost(row: Record) -> AlreadyTerminal | StaleLease | TaskMissing:
    match row["outcome"]:
        case "terminal":
            return AlreadyTerminal(TaskState(row["state"]), row["terminal_seq"])
        case "stale":
            return StaleLease(TaskState(row["state"]), row["last_seq"])
        case _:
            return TaskMissing()


async def retry(
    db: Database, *, lease: LeaseKey, error: str, delay_seconds: float | None
) -> LeaseEnded | AlreadyTerminal | StaleLease | TaskMissing:
    """The worker failed: queue the turn again (after a full-jitter backoff unless a delay is given), or FAILED when its
    attempts are used up. The same again under the same fence answers LeaseEnded again. Raises Unavailable."""
    return await _give_back(db, lease, "retry", error, delay_seconds)


async def release(
    db: Database, *, lease: LeaseKey, delay_seconds: float | None
) -> LeaseEnded | AlreadyTerminal | StaleLease | TaskMissing:
    """The worker cannot do it now: queue the turn again; the attempt is not counted and the log says nothing."""
    return await _give_back(db, lease, "release", None, delay_seconds)


async def _give_back(
    db: Database, lease: LeaseKey, kind: str, error: str | None, delay: float | None
) -> LeaseEnded | AlreadyTerminal | StaleLease | TaskMissing:
    row = await db.call(RETURN, lease.tenant, lease.task_id, lease.fence, kind, error, delay)
    if row["outcome"] == "applied":
        return LeaseEnded(TaskState(row["state"]), row["last_seq"])
    return _lost(row)


async def cancel(
    db: Database, *, tenant: str, subject: str, task_id: UUID
) -> Canceled | CancelPending | AlreadyTerminal | TaskMissing:
    """Cancel at once, or, when a worker holds the task, ask it to stop within the task's grace. Raises Unavailable."""
    row = await db.call(CANCEL, tenant, task_id, subject)
    match row["outcome"]:
        case "canceled":
            return Canceled(row["last_seq"])
        case "pending":
            return CancelPending(row["seconds_left"], row["fence"], row["last_seq"])
        case "terminal":
            return AlreadyTerminal(TaskState(row["state"]), row["terminal_seq"])
        case _:
            return TaskMissing()


async def end_due(db: Database, due: Due) -> LeaseEnded | None:
    """End what ``leases.due`` named, judged again under the locks; None: due no longer. Raises Unavailable."""
    row = await db.call(END_DUE, due.tenant, due.task_id, due.fence, due.kind)
    return LeaseEnded(TaskState(row["state"]), row["last_seq"]) if row["outcome"] == "applied" else None


async def fail_deleted(db: Database, *, tenant: str, task_id: UUID) -> bool:
    """Fail a live task whose agent was deleted; False when it is terminal already. Raises Unavailable."""
    return (await db.call(FAIL_DELETED, tenant, task_id))["outcome"] == "applied"


async def forget(db: Database, *, tenant: str, older_seconds: float, limit: int) -> list[UUID]:
    """Cancel up to ``limit`` of a tenant's tasks that have waited for input longer than this; which. Raises
    Unavailable."""
    return [row["task_id"] for row in await db.fetch(FORGET, tenant, older_seconds, limit)]
