"""What the ledger answers: one frozen dataclass per row or outcome.

Races are expected, so their outcomes are values: callers match on them and end in ``assert_never``.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from app.protocol.states import TaskState

JsonObject = dict[str, Any]

# Outcomes of writes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskMissing:
    """No such task for this tenant (unknown and foreign look the same)."""


@dataclass(frozen=True, slots=True)
class AlreadyTerminal:
    """The race is lost: the task has its one terminal state."""

    state: TaskState
    terminal_seq: int


@dataclass(frozen=True, slots=True)
class StaleLease:
    """The fence does not match: the lease has ended. ``state`` and ``last_seq`` are the task's now."""

    state: TaskState
    last_seq: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A client message is in the ledger (committed).

    ``turn`` is the turn this message started or queued; ``replayed`` is true for a duplicate, whose first sending is
    answered; ``state`` and ``last_seq`` are the task's as of this transaction.
    """

    task_id: UUID
    context_id: str
    turn: int
    state: TaskState
    last_seq: int
    replayed: bool


@dataclass(frozen=True, slots=True)
class IdempotencyClash:
    """The key was used before with another message, or two keys of one request disagree."""


@dataclass(frozen=True, slots=True)
class ContextMismatch:
    """The message names a contextId that is not the task's; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Busy:
    """The task is working and its agent's ``onBusy`` is ``reject``; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A batch of worker events is in the ledger (committed), or was already.

    ``seqs`` has one seq per event of the batch; ``duplicates`` are the indexes that had been stored before;
    ``signal`` is what the lease is asked to do: cancel, interrupt, deadline or None.
    """

    seqs: list[int]
    state: TaskState
    last_seq: int
    turn_ended: bool
    lease_ended: bool
    duplicates: list[int]
    signal: str | None


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """A lease was given back, timed out, or was taken away; ``state`` is the task's state now."""

    state: TaskState
    last_seq: int


@dataclass(frozen=True, slots=True)
class Canceled:
    """The task was canceled by this transaction."""

    last_seq: int


@dataclass(frozen=True, slots=True)
class CancelPending:
    """A worker holds the task and has been asked to stop; the ledger forces CANCELED in ``seconds_left``."""

    seconds_left: float
    fence: int
    last_seq: int


# Leases --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimed:
    """A fresh (or, for a repeated claimId, a held) lease."""

    tenant: str
    task_id: UUID
    agent_id: str
    context_id: str
    fence: int
    attempt: int
    turn: int
    priority: int
    claimed_at: datetime
    """When the task became WORKING by this claim (of a held lease: when its status last changed)."""
    queued_at: datetime
    expires_at: datetime
    deadline_at: datetime | None
    last_seq: int
    message_body: str
    """The event body that holds the user message of this turn: ``{"task": …}`` for turn 1, else ``{"message": …}``."""


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """``ok`` with the new expiry, or lost: then ``state`` says whether the task is terminal."""

    ok: bool
    expires_at: datetime | None
    signal: str | None
    state: TaskState | None


@dataclass(frozen=True, slots=True)
class Due:
    """A queue row whose lease, cancel grace, deadline or queue time-out has passed."""

    tenant: str
    task_id: UUID
    fence: int
    kind: str


# Reads ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskHead:
    """A task's row without its content, with its queue row where it has one."""

    tenant: str
    task_id: UUID
    agent_id: str
    context_id: str
    state: TaskState
    fence: int
    attempt: int
    turn: int
    turns_queued: int
    last_seq: int
    terminal_seq: int | None
    status_at: datetime
    created_at: datetime
    created_by: str
    worker_id: str | None
    lease_until: datetime | None
    run_at: datetime | None
    priority: int


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task's row and its content: ``task`` is the A2A Task as a JSON object, the fold of events 1..head.last_seq."""

    head: TaskHead
    task: JsonObject


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of tasks, newest status first. ``total`` is exact unless ``total_capped``."""

    tasks: list[LoadedTask]
    total: int
    total_capped: bool
    more: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One row (task, seq). ``body`` is stored JSON text, written out as it is (a StreamResponse where A2A shows it)."""

    seq: int
    kind: str
    turn: int
    attempt: int
    actor_kind: str
    actor_id: str
    at: datetime
    body: str


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events after a seq, with the log's bounds read in the same snapshot."""

    events: list[Event]
    last_seq: int
    min_seq: int
    terminal_seq: int | None
    state: TaskState


@dataclass(frozen=True, slots=True)
class Turn:
    """``state``: queued, running, paused, done, failed or canceled."""

    turn: int
    state: str


@dataclass(frozen=True, slots=True)
class FirstWord:
    """A turn's first event by its worker: ``seq`` is None while there is none, ``status`` is the body of a status event
    and None for every other kind. ``turn_open``: the turn is queued or running."""

    turn_open: bool
    seq: int | None
    status: JsonObject | None


@dataclass(frozen=True, slots=True)
class Agent:
    """A registered destination. ``config`` is the PUT body with all defaults filled in (native-api.md, Agents)."""

    agent_id: str
    tenant: str
    config: JsonObject
    revision: int
    updated_at: datetime
    deleted: bool = False
    shared_with: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Repaired:
    """A live task that stood in no queue was queued again."""

    task_id: UUID
    agent_id: str


@dataclass(frozen=True, slots=True)
class LaneSet:
    """A lane has the share that its agent's owner gave it."""


@dataclass(frozen=True, slots=True)
class LanesFull:
    """The agent has so many lanes already that were set and never had a task that no further one is made."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Per agent, for gauges: claimable or delayed rows, age in seconds of the oldest claimable one, leases held."""

    agent_id: str
    depth: int
    delayed: int
    running: int
    oldest_age_seconds: float
