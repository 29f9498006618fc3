"""One task of the model: its log, turns, lease and work, and the ways its course can go. Used by model.py.

Time is a set of flags, for the machine decides when something has passed.
"""

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from app.ledger.inputs import TaskSettings
from app.ledger.rows import AlreadyTerminal
from app.protocol.states import INTERRUPTED, TaskState

TURN_ENDS = {TaskState.COMPLETED: "done", TaskState.CANCELED: "canceled", TaskState.INPUT_REQUIRED: "paused",
             TaskState.AUTH_REQUIRED: "paused", TaskState.FAILED: "failed", TaskState.REJECTED: "failed"}  # fmt: skip


class Entry(NamedTuple):
    """One event of the log, as far as the design says what it is."""

    kind: str
    state: TaskState | None
    actor: str
    turn: int
    attempt: int


class Item(NamedTuple):
    """One event of a worker's batch: an artifact chunk, a status (``state``), or a direct reply (neither)."""

    event_id: str | None
    text: str
    state: TaskState | None = None
    artifact: str | None = None
    append: bool = False
    last: bool = False

    @property
    def ends(self) -> bool:
        return self.is_reply or (self.state is not None and self.state is not TaskState.WORKING)

    @property
    def is_reply(self) -> bool:
        return self.state is None and self.artifact is None

    @property
    def body(self) -> tuple[object, ...]:
        return self[1:]


class Sender(NamedTuple):
    tenant: str
    subject: str
    agent: str


@dataclass
class Turn:
    message_id: str
    text: str
    state: str = "queued"
    spoken: bool = False


@dataclass
class Lease:
    fence: int
    worker: str
    claim_id: str | None
    lapsed: bool = False
    signal: str | None = None
    signal_due: bool = False


@dataclass
class Work:
    """What stands in the queue. ``deadline`` and ``claim_by``: None, "ahead" or "passed"."""

    deadline: str | None
    claim_by: str | None
    ready: bool = True
    lease: Lease | None = None


class Stored(NamedTuple):
    """What a producerEventId stands for; ``turn_ended``: the answer that its batch was given."""

    body: tuple[object, ...]
    seq: int
    turn_ended: bool


@dataclass
class Task:
    task_id: UUID
    sender: Sender
    context: str
    options: TaskSettings
    turns: list[Turn]
    work: Work | None = None
    state: TaskState = TaskState.SUBMITTED
    turn: int = 1
    attempt: int = 0
    fence: int = 0
    fence_grows: bool = False
    log: list[Entry] = field(default_factory=list)
    ended: tuple[int, str] | None = None
    artifacts: dict[str, tuple[bool, list[str]]] = field(default_factory=dict)
    stored: dict[str, Stored] = field(default_factory=dict)

    @property
    def lease(self) -> Lease | None:
        return self.work.lease if self.work else None

    @property
    def last_seq(self) -> int:
        return len(self.log)

    @property
    def behind(self) -> list[int]:
        """The turns that wait for the one that runs, or rests, to end."""
        return [n for n, turn in enumerate(self.turns, 1) if turn.state == "queued" and n != self.turn]

    @property
    def terminal(self) -> AlreadyTerminal:
        return AlreadyTerminal(self.state, self.last_seq)

    def add(self, kind: str, state: TaskState | None, actor: str) -> None:
        self.log.append(Entry(kind, state, actor, self.turn, self.attempt))

    def enqueue(self, ready: bool = True) -> None:
        """A turn's work becomes claimable, with a deadline and a queue time-out of its own."""
        deadline = "ahead" if self.options.deadline_seconds else None
        self.work = Work(deadline, "ahead" if self.options.queue_timeout_seconds else None, ready)

    def end_lease(self, kind: str) -> None:
        if self.lease:
            assert self.work
            self.ended, self.fence_grows, self.work.lease = (self.lease.fence, kind), True, None

    def end(self, state: TaskState, actor: str, kind: str) -> None:
        """The terminal event; the current turn ends with it, those behind it are canceled."""
        self.end_lease(kind)
        self.add("status", state, actor)
        self.close(state)

    def close(self, state: TaskState) -> None:
        for number, turn in enumerate(self.turns, 1):
            if turn.state in ("queued", "running"):
                turn.state = TURN_ENDS[state] if number == self.turn else "canceled"
        self.state, self.work = state, None

    def finish(self, state: TaskState) -> None:
        """The worker's last event: the task ends or pauses, or only the turn does because another waits."""
        assert self.lease
        canceling, behind = self.lease.signal == "cancel", self.behind
        goes_on = bool(behind) and state in (TaskState.COMPLETED, TaskState.INPUT_REQUIRED)
        if goes_on and state is TaskState.COMPLETED:
            self.add("turn.ended", TaskState.WORKING, "worker")
        else:
            self.add("status", state, "worker")
        self.turns[self.turn - 1].state = TURN_ENDS[state]
        if canceling and (goes_on or state in INTERRUPTED):
            self.end(TaskState.CANCELED, "broker", "cancel")
        elif goes_on:
            self.end_lease("turn")
            self.turn, self.attempt = behind[0], 0
            if state is TaskState.INPUT_REQUIRED:
                self.add("status", TaskState.WORKING, "broker")
            self.enqueue()
        else:
            self.end_lease("finish")
            if state.is_terminal:
                self.close(state)
            self.state, self.work = state, None

    def give_back(self, kind: str, ready: bool) -> None:
        """The lease ends without an answer (``retry``, ``release`` or ``expired``)."""
        assert self.lease
        assert self.work
        if self.lease.signal == "cancel":
            self.end(TaskState.CANCELED, "broker", kind)
        elif kind != "release" and self.attempt >= self.options.max_attempts:
            self.end(TaskState.FAILED, "broker", kind)
        else:
            self.end_lease(kind)
            if kind != "release":
                self.add("status", TaskState.WORKING, "broker")
            else:
                self.attempt -= 1
                if self.attempt == 0:
                    self.turns[self.turn - 1].state = "queued"
            self.work.ready = ready

    def ask_to_stop(self, signal: str) -> None:
        assert self.lease
        self.lease.signal, self.lease.signal_due = signal, self.options.cancel_grace_seconds == 0
