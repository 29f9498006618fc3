"""The ledger as the design has it, without a database: plain objects, one step after the other.

Written from ledger.md (Algorithm), resume-contract.md (Model, Workflow, Cancel against complete, Duplicates) and
native-api.md (What each transition appends); machine.py takes each step here and on the ledger, and compares. A step
answers what the ledger has to answer, in the ledger's own types. What only the database knows (ids, fences, times) is
told to the model afterwards.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from app.ledger.inputs import LeaseKey, TaskSettings
from app.ledger.rows import (
    AlreadyTerminal,
    Applied,
    Busy,
    Canceled,
    CancelPending,
    Claimed,
    ContextMismatch,
    Due,
    HeartbeatResult,
    IdempotencyClash,
    LeaseEnded,
    Sent,
    StaleLease,
    TaskMissing,
)  # fmt: skip
from app.protocol.states import INTERRUPTED, TaskState
from tests.integration.ledger.model_task import Entry, Item, Lease, Sender, Stored, Task, Turn

Lost = AlreadyTerminal | StaleLease | TaskMissing


class Refused(NamedTuple):
    """A batch that is not possible: the error's reason, and which event."""

    reason: str
    at: int


class Keys(NamedTuple):
    """A message's idempotency keys; ``content`` stands for its hash."""

    message_id: str | None
    header: str | None
    content: object


class Model:
    """All tenants' tasks. ``tasks`` is in the order of their submits."""

    def __init__(self) -> None:
        self.tasks: dict[UUID, Task] = {}
        self.keys: dict[tuple[Sender, str, str], tuple[object, UUID, int]] = {}

    def find(self, tenant: str, task_id: UUID) -> Task | None:
        task = self.tasks.get(task_id)
        return task if task and task.sender.tenant == tenant else None

    def _names(self, sender: Sender, keys: Keys) -> list[tuple[Sender, str, str]]:
        given = (("message", keys.message_id), ("header", keys.header))
        return [(sender, kind, key) for kind, key in given if key is not None]

    def _known(self, sender: Sender, keys: Keys) -> Sent | IdempotencyClash | None:
        """What the keys stand for already. A key that is new beside a known one stands for the same from now on."""
        names = self._names(sender, keys)
        known = [self.keys[name] for name in names if name in self.keys]
        if any(content != keys.content for content, _, _ in known) or len(set(known)) > 1:
            return IdempotencyClash()
        if not known:
            return None
        for name in names:
            self.keys[name] = known[0]
        _, task_id, turn = known[0]
        task = self.tasks[task_id]
        return Sent(task_id, task.context, turn, task.state, task.last_seq, replayed=True)

    def submit(
        self, sender: Sender, keys: Keys, turn: Turn, context: str | None, options: TaskSettings, made: Sent | None
    ) -> Sent | IdempotencyClash:
        if known := self._known(sender, keys):
            return known
        assert made
        assert made.task_id not in self.tasks
        task = Task(made.task_id, sender, context or made.context_id, options, [turn])
        self.tasks[made.task_id] = task
        task.add("task.submitted", TaskState.SUBMITTED, "client")
        task.enqueue(ready=not options.delay_seconds)
        self.keys.update((name, (keys.content, task.task_id, 1)) for name in self._names(sender, keys))
        return Sent(task.task_id, task.context, 1, task.state, 1, replayed=False)

    def send(
        self, sender: Sender, keys: Keys, turn: Turn, task_id: UUID, context: str | None, on_busy: str | None
    ) -> Sent | IdempotencyClash | TaskMissing | ContextMismatch | AlreadyTerminal | Busy:
        if known := self._known(sender, keys):
            return known
        task = self.find(sender.tenant, task_id)
        if task is None or task.sender.agent != sender.agent:
            return TaskMissing()
        if context not in (None, task.context):
            return ContextMismatch()
        if task.state.is_terminal:
            return task.terminal
        if task.state not in INTERRUPTED and (on_busy or task.options.on_busy) == "reject":
            return Busy()
        task.turns.append(turn)
        number = len(task.turns)
        task.log.append(Entry("message.user", None, "client", number, 0))
        if task.state in INTERRUPTED:
            task.state, task.turn, task.attempt = TaskState.WORKING, number, 0
            task.add("status", TaskState.WORKING, "broker")
            task.enqueue()
        self.keys.update((name, (keys.content, task_id, number)) for name in self._names(sender, keys))
        return Sent(task_id, task.context, number, task.state, task.last_seq, replayed=False)

    def claimable(self, agent: str) -> list[Task]:
        return [t for t in self.tasks.values() if t.sender.agent == agent and t.work and t.work.ready and not t.lease]

    def claim(self, agent: str, worker: str, limit: int, claim_id: str | None, claimed: Sequence[Claimed]) -> None:
        """Whom a claim serves is the lanes' to choose; how many, in what order inside a lane, and as what, is fixed."""
        ready = self.claimable(agent)
        taken = [task for task in (self.find(lease.tenant, lease.task_id) for lease in claimed) if task in ready]
        assert len(claimed) == len({lease.task_id for lease in claimed}) == len(taken) == min(limit, len(ready))
        for task, left in ((task, left) for task in taken for left in ready if left not in taken):
            same_lane = (task.sender.tenant, task.options.fair_key) == (left.sender.tenant, left.options.fair_key)
            assert not same_lane or task.options.priority >= left.options.priority
        for task, lease in zip(taken, claimed, strict=True):
            assert task.work
            assert lease.fence > task.fence
            task.work.lease, task.work.claim_by = Lease(lease.fence, worker, claim_id), None
            task.state, task.attempt, task.fence_grows = TaskState.WORKING, task.attempt + 1, True
            if task.attempt == 1:
                task.turns[task.turn - 1].state = "running"
                task.add("turn.started", None, "broker")
            task.add("status", TaskState.WORKING, "worker")

    def append(self, key: LeaseKey, batch: Sequence[Item]) -> Applied | Lost | Refused:
        """All or nothing; a duplicate is judged before the fence and before the task's state."""
        task = self.find(key.tenant, key.task_id)
        if task is None:
            return TaskMissing()
        if task.lease is None or task.lease.fence != key.fence:
            return self._resent(task, batch)
        signal, artifacts, stored = task.lease.signal, dict(task.artifacts), dict(task.stored)
        seqs: list[int] = []
        duplicates: list[int] = []
        fresh: list[Item] = []
        for index, item in enumerate(batch):
            if known := stored.get(item.event_id or ""):
                if known.body != item.body:
                    return Refused("PRODUCER_EVENT_CONFLICT", index)
                duplicates.append(index)
                seqs.append(known.seq)
                continue
            if item.is_reply and (len(batch) > 1 or task.turns[task.turn - 1].spoken):
                return Refused("INVALID_TRANSITION", index)
            if item.artifact and (reason := _touch(artifacts, item)):
                return Refused(reason, index)
            fresh.append(item)
            seqs.append(task.last_seq + len(fresh))
            if item.event_id:
                stored[item.event_id] = Stored(item.body, seqs[-1], False)
        task.artifacts, task.stored = artifacts, stored
        turn = task.turns[task.turn - 1]
        turn.spoken = turn.spoken or bool(fresh)
        for item in fresh:
            self._write(task, item)
        if not fresh or not fresh[-1].ends:
            return Applied(seqs, task.state, task.last_seq, False, False, duplicates, signal)
        turn_ended = task.ended == (key.fence, "turn")
        if event_id := fresh[-1].event_id:
            task.stored[event_id] = task.stored[event_id]._replace(turn_ended=turn_ended)
        return Applied(seqs, task.state, task.last_seq, turn_ended, True, duplicates, signal)

    def _write(self, task: Task, item: Item) -> None:
        if item.artifact:
            task.add("artifact.delta" if item.append else "artifact.replace", None, "worker")
        elif item.ends:
            task.finish(item.state or TaskState.COMPLETED)
        else:
            task.add("status", item.state, "worker")

    def _resent(self, task: Task, batch: Sequence[Item]) -> Applied | Lost | Refused:
        """The lease has ended: only what was stored before is answered, event by event."""
        found: list[Stored] = []
        for index, item in enumerate(batch):
            known = task.stored.get(item.event_id or "")
            if known is None:
                return task.terminal if task.state.is_terminal else StaleLease(task.state, task.last_seq)
            if known.body != item.body:
                return Refused("PRODUCER_EVENT_CONFLICT", index)
            found.append(known)
        return Applied(
            [one.seq for one in found], task.state, task.last_seq, found[-1].turn_ended, True,
            list(range(len(batch))), None,
        )  # fmt: skip

    def give_back(self, key: LeaseKey, kind: str, ready: bool) -> LeaseEnded | Lost:
        task = self.find(key.tenant, key.task_id)
        if task is None:
            return TaskMissing()
        if task.ended != (key.fence, kind):
            if task.state.is_terminal:
                return task.terminal
            if task.lease is None or task.lease.fence != key.fence:
                return StaleLease(task.state, task.last_seq)
            task.give_back(kind, ready)
        return LeaseEnded(task.state, task.last_seq)

    def heartbeat(self, key: LeaseKey, extends: bool) -> HeartbeatResult:
        """Without the new expiry, which only the database knows."""
        task = self.find(key.tenant, key.task_id)
        lease = task.lease if task else None
        if lease is None or lease.fence != key.fence:
            return HeartbeatResult(False, None, None, task.state if task else None)
        lease.lapsed = lease.lapsed and not extends
        return HeartbeatResult(True, None, lease.signal, None)

    def cancel(self, tenant: str, task_id: UUID) -> Canceled | CancelPending | AlreadyTerminal | TaskMissing:
        """A pending cancel is answered with the grace that it began with."""
        task = self.find(tenant, task_id)
        if task is None:
            return TaskMissing()
        if task.state.is_terminal:
            return task.terminal
        if task.lease is None:
            task.end(TaskState.CANCELED, "client", "cancel")
            return Canceled(task.last_seq)
        if task.lease.signal != "cancel":
            task.ask_to_stop("cancel")
            task.add("cancel.requested", TaskState.WORKING, "client")
        return CancelPending(task.options.cancel_grace_seconds, task.lease.fence, task.last_seq)

    def due(self) -> Iterable[Due]:
        for task in self.tasks.values():
            if (work := task.work) is None:
                continue
            lease = work.lease
            kinds: list[str | None] = []
            if lease and (lease.lapsed or lease.signal_due):
                kinds.append(lease.signal if lease.signal_due else "expired")
            if work.claim_by == "passed" or (work.deadline == "passed" and (lease is None or lease.signal is None)):
                kinds.append("queue_timeout" if work.claim_by == "passed" else "deadline")
            for kind in kinds:
                assert kind
                yield Due(task.sender.tenant, task.task_id, task.fence, kind)

    def end_due(self, due: Due) -> LeaseEnded | None:
        """What was due is judged again: a heartbeat, an end or a claim in between wins."""
        task = self.find(due.tenant, due.task_id)
        if task is None or task.work is None or due.fence != task.fence:
            return None
        work, lease = task.work, task.lease
        asked = lease.signal if lease and lease.signal_due else None
        if due.kind == "expired" and lease and lease.lapsed:
            task.give_back("expired", ready=True)
        elif due.kind == "cancel" and asked == "cancel":
            task.end(TaskState.CANCELED, "broker", "cancel")
        elif due.kind == "deadline" and ((work.deadline == "passed" and lease is None) or asked == "deadline"):
            task.end(TaskState.FAILED, "broker", "deadline")
        elif due.kind == "deadline" and work.deadline == "passed" and lease and lease.signal is None:
            task.ask_to_stop("deadline")
        elif due.kind == "queue_timeout" and work.claim_by == "passed":
            task.end(TaskState.FAILED, "broker", "queue_timeout")
        else:
            return None
        return LeaseEnded(task.state, task.last_seq)

    def pass_time(self, task: Task, what: str) -> None:
        """``what``: the column of the queue that is put into the past, where it is set."""
        if (work := task.work) is None:
            return
        lease = work.lease
        if what == "run_at":
            work.ready = True
        elif what == "deadline":
            work.deadline = work.deadline and "passed"
        elif what == "claim_by":
            work.claim_by = work.claim_by and "passed"
        elif lease and what == "lease_until":
            lease.lapsed = True
        elif lease and what == "signal_until":
            lease.signal_due = lease.signal is not None

    def forget(self, tenant: str) -> set[UUID]:
        paused = [t for t in self.tasks.values() if t.sender.tenant == tenant and t.state in INTERRUPTED]
        for task in paused:
            task.end(TaskState.CANCELED, "broker", "forgotten")
        return {task.task_id for task in paused}

    def fail_deleted(self, tenant: str, task_id: UUID) -> bool:
        task = self.find(tenant, task_id)
        if task is None or task.state.is_terminal:
            return False
        task.end(TaskState.FAILED, "broker", "deleted")
        return True


def _touch(artifacts: dict[str, tuple[bool, list[str]]], item: Item) -> str | None:
    """append=false makes, replaces and reopens; append=true needs an open one. Answers why not."""
    assert item.artifact
    if not item.append:
        artifacts[item.artifact] = (item.last, [item.text])
        return None
    if item.artifact not in artifacts:
        return "ARTIFACT_UNKNOWN"
    closed, texts = artifacts[item.artifact]
    if closed:
        return "ARTIFACT_CLOSED"
    artifacts[item.artifact] = (item.last, [*texts, item.text])
    return None
