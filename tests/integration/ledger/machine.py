"""The state machine: each step is taken on the ledger and on the model, and what they answer and hold is compared.

test_model.py runs it. Tasks and leases are chosen by number, so what Hypothesis draws does not depend on the database.
"""

import asyncio
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, LiteralString, NamedTuple, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from app.errors import InvalidArgument, ProducerEventConflict
from app.ledger import events, leases, tasks, transitions
from app.ledger.inputs import Keys as LedgerKeys
from app.ledger.inputs import LeaseKey, NewEvent, TaskSettings
from app.ledger.pool import Database
from app.ledger.rows import CancelPending, Due, Event, LeaseEnded, LoadedTask, Sent
from app.protocol.states import TaskState
from tests.integration.ledger.invariants import check_all
from tests.integration.ledger.model import Keys, Model, Refused
from tests.integration.ledger.model_task import Entry, Item, Sender, Task, Turn
from tests.support.ledger import chunk, message, reply, status

T = TypeVar("T")
HOUR = 3600.0
PAST: dict[str, LiteralString] = {
    "lease_until": "UPDATE queue SET lease_until = clock_timestamp() - interval '1 s', lease_seconds = 0 "
    "WHERE tenant_id = $1 AND task_id = $2 AND worker IS NOT NULL",
    "signal_until": "UPDATE queue SET signal_until = clock_timestamp() - interval '1 s' "
    "WHERE tenant_id = $1 AND task_id = $2 AND signal IS NOT NULL",
    "run_at": "UPDATE queue SET run_at = clock_timestamp() - interval '1 s' "
    "WHERE tenant_id = $1 AND task_id = $2 AND run_at > clock_timestamp()",
    "deadline": "UPDATE queue SET deadline = clock_timestamp() - interval '1 s' "
    "WHERE tenant_id = $1 AND task_id = $2 AND deadline IS NOT NULL",
    "claim_by": "UPDATE queue SET claim_by = clock_timestamp() - interval '1 s' "
    "WHERE tenant_id = $1 AND task_id = $2 AND claim_by IS NOT NULL",
}
_examples = itertools.count(1)

TENANTS, AGENTS, WORKERS = st.sampled_from("ab"), st.sampled_from("xxxxy"), st.sampled_from(["w1", "w2"])
SUBJECTS = st.sampled_from(["u1", "u1", "u2"])
NUMBERS = st.one_of(st.just(0), st.integers(0, 2), st.integers(0, 30))
OFTEN = st.sampled_from([False, False, True])
MOSTLY, SELDOM = st.sampled_from([True] * 4 + [False]), st.sampled_from([False] * 9 + [True])
TEXTS = st.sampled_from(["one"] * 4 + ["two"])
HEADERS = st.sampled_from([None, None, None, "h1", "h2"])
EVENT_IDS = st.sampled_from([*[None] * 4, *(f"e{n}" for n in range(16))])
SETTINGS = st.builds(
    TaskSettings,
    max_attempts=st.sampled_from([3, 2, 1]),
    backoff_seconds=st.just(0),
    lease_seconds=st.just(HOUR),
    cancel_grace_seconds=st.sampled_from([0, HOUR]),
    on_busy=st.sampled_from(["enqueue"] * 6 + ["reject"]),
    deadline_seconds=st.sampled_from([None, None, HOUR]),
    queue_timeout_seconds=st.sampled_from([None, None, HOUR]),
    priority=st.sampled_from([5, 5, 9]),
    fair_key=st.sampled_from(["", "", "f"]),
    delay_seconds=st.sampled_from([0, 0, 0, HOUR]),
)
ENDING_STATES = st.sampled_from([
    *[TaskState.COMPLETED] * 3, *[TaskState.INPUT_REQUIRED] * 4, TaskState.AUTH_REQUIRED, None, TaskState.FAILED,
    TaskState.REJECTED, TaskState.CANCELED,
])  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> list[Item]:
    """Up to three chunks and statuses, and often an end; no producerEventId twice (the door refuses that)."""
    ids = iter(draw(st.lists(EVENT_IDS, min_size=4, max_size=4, unique_by=lambda event_id: event_id or object())))
    batch = [
        Item(next(ids), draw(TEXTS), None, draw(st.sampled_from("AAAB")), append=draw(OFTEN), last=draw(OFTEN))
        if draw(st.booleans())
        else Item(next(ids), draw(TEXTS), TaskState.WORKING)
        for _ in range(draw(st.integers(0, 3)))
    ]
    if not batch or draw(OFTEN):
        batch.append(Item(next(ids), draw(TEXTS), draw(ENDING_STATES)))
    return batch


ACTIONS: dict[tuple[str, int], dict[str, st.SearchStrategy[Any]]] = {
    ("go_on", 30): {"number": NUMBERS, "batch": batches()},
    ("again", 10): {"number": NUMBERS},
    ("submit", 5): {
        "tenant": TENANTS, "subject": SUBJECTS, "agent": AGENTS, "number": st.integers(1, 4), "counts": MOSTLY,
        "header": HEADERS, "text": TEXTS, "context": st.sampled_from([None, None, None, "c1"]), "settings": SETTINGS,
    },
    ("send", 9): {
        "number": NUMBERS, "live": MOSTLY, "foreign": SELDOM, "other_agent": SELDOM, "subject": SUBJECTS,
        "message_number": st.integers(1, 6), "header": HEADERS, "text": TEXTS,
        "context": st.sampled_from(["none"] * 5 + ["its own", "its own", "another"]),
        "on_busy": st.sampled_from([None] * 6 + ["enqueue", "reject"]),
    },
    ("cancel", 5): {"number": NUMBERS, "live": MOSTLY, "leased": MOSTLY, "foreign": SELDOM},
    ("claim", 5): {
        "agent": AGENTS, "worker": WORKERS, "limit": st.sampled_from([1, 1, 2, 100]),
        "claim_id": st.sampled_from([None, "c1"]),
    },
    ("claim_again", 1): {"agent": AGENTS, "worker": WORKERS},
    ("write", 14): {"number": NUMBERS, "live": st.booleans(), "foreign": SELDOM, "batch": batches()},
    ("give_back", 6): {
        "number": NUMBERS, "live": MOSTLY, "foreign": SELDOM, "kind": st.sampled_from(["retry", "release"]),
        "delay": st.sampled_from([None, None, 0, HOUR]),
    },
    ("heartbeat", 4): {
        "numbers": st.lists(NUMBERS, min_size=1, max_size=3), "live": st.booleans(), "foreign": SELDOM,
        "extends": MOSTLY,
    },
    ("time_passes", 8): {
        "number": NUMBERS, "live": MOSTLY, "what": st.sampled_from(["lease_until"] * 4 + [*PAST]),
        "reap": st.sampled_from(["no", "too late", "at once", "at once"]),
    },
    ("reap", 3): {"at_once": MOSTLY},
    ("reap_late", 1): {},
    ("forget", 1): {"tenant": TENANTS},
    ("fail_deleted", 1): {"number": NUMBERS, "live": MOSTLY},
}  # fmt: skip
"""What may happen next: (the method, how often), and its arguments."""


def _steps(action: tuple[str, int]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(action[0]), st.fixed_dictionaries(ACTIONS[action]))


STEPS = st.sampled_from([action for action in ACTIONS for _ in range(action[1])]).flatmap(_steps)


class Hold(NamedTuple):
    """A lease as its worker remembers it, for good."""

    key: LeaseKey
    worker: str


class LedgerMachine(RuleBasedStateMachine):
    """One example: two tenants, two agents and their tasks, under names that no other example uses."""

    def __init__(self, runner: asyncio.Runner, db: Database) -> None:
        super().__init__()
        self.runner, self.db, self.model = runner, db, Model()
        self.suffix = f"-{next(_examples)}"
        self.seen: dict[UUID, int] = {}
        self.holds: list[Hold] = []
        self.calls: list[Callable[[], None]] = []
        self.old_dues: list[Due] = []
        self.releases = Counter[tuple[UUID, int]]()

    def do(self, call: Callable[..., None], *args: Any) -> None:
        """A call that may be repeated later, word by word, as by somebody whose answer was lost."""
        self.calls.append(partial(call, *args))
        self.calls[-1]()

    def again(self, number: int) -> None:
        if self.calls:
            self.calls[-1 - number % len(self.calls)]()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def task(self, number: int, live: bool, leased: bool = False) -> Task | None:
        """The tasks counted from the newest: ``live``: of those that are not terminal; ``leased``: of those, if any."""
        made = [task for task in self.model.tasks.values() if not (live and task.state.is_terminal)]
        made = [task for task in made if leased and task.lease] or made
        return made[-1 - number % len(made)] if made else None

    def hold(self, number: int, live: bool) -> Hold | None:
        """The leases counted from the newest: of those that have not ended, or of those that have (best where there is
        a newer one)."""
        holds = [hold for hold in self.holds if self._lives(hold.key) == live]
        if not live:
            holds = [hold for hold in holds if self.model.tasks[hold.key.task_id].lease] or holds
        return holds[-1 - number % len(holds)] if holds else None

    def _lives(self, key: LeaseKey) -> bool:
        task = self.model.tasks[key.task_id]
        return task.lease is not None and task.lease.fence == key.fence

    def named(self, letter: str) -> str:
        return letter + self.suffix

    def foreign(self, tenant: str, is_foreign: bool) -> str:
        return self.named("b" if tenant.startswith("a") else "a") if is_foreign else tenant

    def agree(self, real: object, predicted: object) -> None:
        assert real == predicted, f"the ledger answers {real}, the model {predicted}"

    def go_on(self, number: int, batch: list[Item]) -> None:
        """Whatever brings a task forward: without this most courses would end before they have begun."""
        if (task := self.task(number, live=True)) is None:
            return
        if task.lease:
            self._new_batch(
                Hold(LeaseKey(task.sender.tenant, task.task_id, task.lease.fence), task.lease.worker), batch
            )
        elif task.work:
            self.time_passes(number, live=True, what="run_at", reap="no")
            self.claim(task.sender.agent[0], "w1", limit=1, claim_id=None)
        else:
            self._send(task, task.sender, Keys(None, None, None), "go on", None, None)

    # What clients do -------------------------------------------------------------------------------------------------

    @initialize(settings=SETTINGS, messages=st.sampled_from([0, 0, 1, 2, 3]))
    def first(self, settings: TaskSettings, messages: int) -> None:
        self._submit(Sender(self.named("a"), "u1", self.named("x")), Keys("m1", None, "first"), "one", None, settings)
        for _ in range(messages):
            (task,) = self.model.tasks.values()
            self._send(task, task.sender, Keys(None, None, None), "more", None, None)

    @rule(step=STEPS)
    def take(self, step: tuple[str, dict[str, Any]]) -> None:
        """One rule for all actions: of several rules Hypothesis leaves half out in each example (swarm testing), and a
        task whose claims or writes are left out does not get far."""
        name, arguments = step
        getattr(self, name)(**arguments)

    def submit(
        self, tenant: str, subject: str, agent: str, number: int, counts: bool, header: str | None, text: str,
        context: str | None, settings: TaskSettings,
    ) -> None:  # fmt: skip
        sender = Sender(self.named(tenant), subject, self.named(agent))
        keys = Keys(f"m{number}" if counts else None, header, (f"m{number}", text, context))
        self.do(self._submit, sender, keys, text, context, settings)

    def _submit(self, sender: Sender, keys: Keys, text: str, context: str | None, settings: TaskSettings) -> None:
        body, message_id = message(text, keys.message_id)
        real = self.run(
            transitions.submit(
                self.db, tenant=sender.tenant, subject=sender.subject, agent_id=sender.agent, context_id=context,
                message=body, keys=_ledger_keys(keys), settings=settings,
            )
        )  # fmt: skip
        made = real if isinstance(real, Sent) else None
        self.agree(real, self.model.submit(sender, keys, Turn(message_id, text), context, settings, made))
        if made:
            self.observe(self.model.tasks[made.task_id])

    def send(
        self, number: int, live: bool, foreign: bool, other_agent: bool, subject: str, message_number: int,
        header: str | None, text: str, context: str, on_busy: str | None,
    ) -> None:  # fmt: skip
        if (task := self.task(number, live)) is None:
            return
        agent = self.named("y" if other_agent else task.sender.agent[0])
        sender = Sender(self.foreign(task.sender.tenant, foreign), subject, agent)
        keys = Keys(f"m{message_number}", header, (f"m{message_number}", text, context, task.task_id))
        given = {"none": None, "its own": task.context, "another": "another"}[context]
        self.do(self._send, task, sender, keys, text, given, on_busy)

    def _send(
        self, task: Task, sender: Sender, keys: Keys, text: str, context: str | None, on_busy: str | None
    ) -> None:
        body, message_id = message(text, keys.message_id)
        real = self.run(
            transitions.send(
                self.db, tenant=sender.tenant, subject=sender.subject, agent_id=sender.agent, task_id=task.task_id,
                context_id=context, message=body, keys=_ledger_keys(keys), on_busy=on_busy,
            )
        )  # fmt: skip
        self.agree(real, self.model.send(sender, keys, Turn(message_id, text), task.task_id, context, on_busy))
        self.observe(task)

    def cancel(self, number: int, live: bool, leased: bool, foreign: bool) -> None:
        if (task := self.task(number, live, leased)) is None:
            return
        tenant = self.foreign(task.sender.tenant, foreign)
        real = self.run(transitions.cancel(self.db, tenant=tenant, subject="u1", task_id=task.task_id))
        predicted = self.model.cancel(tenant, task.task_id)
        if isinstance(real, CancelPending) and isinstance(predicted, CancelPending):
            assert real.seconds_left <= predicted.seconds_left
            assert predicted.seconds_left == 0 or task.lease is None or task.lease.signal_due or real.seconds_left > 0
            predicted = CancelPending(real.seconds_left, predicted.fence, predicted.last_seq)
        self.agree(real, predicted)
        self.observe(task)

    # What workers do -------------------------------------------------------------------------------------------------

    def claim(self, agent: str, worker: str, limit: int, claim_id: str | None) -> None:
        agent = self.named(agent)
        real = self.run(
            leases.claim(
                self.db, agent_id=agent, worker_id=worker, limit=limit, lease_seconds=None, claim_id=claim_id
            )
        )  # fmt: skip
        real.sort(key=lambda lease: list(self.model.tasks).index(lease.task_id))
        self.model.claim(agent, worker, limit, claim_id, real)
        for lease in real:
            task = self.model.tasks[lease.task_id]
            told = json.loads(lease.message_body)
            asked = told["task"]["history"][0] if "task" in told else told["message"]
            turn = task.turns[task.turn - 1]
            assert (lease.agent_id, lease.context_id, lease.attempt, lease.turn, lease.priority, lease.last_seq) == (
                agent, task.context, task.attempt, task.turn, task.options.priority, task.last_seq
            )  # fmt: skip
            assert (asked["messageId"], asked["parts"]) == (turn.message_id, [{"text": turn.text}])
            assert (lease.deadline_at is None) == (task.options.deadline_seconds is None)
            self.holds.append(Hold(LeaseKey(lease.tenant, lease.task_id, lease.fence), worker))
            self.observe(task)

    def claim_again(self, agent: str, worker: str) -> None:
        """A claim whose answer was lost: its leases that still live are answered again."""
        agent = self.named(agent)
        real = self.run(leases.held(self.db, agent_id=agent, worker_id=worker, claim_id="c1"))
        predicted = {
            (task.task_id, task.lease.fence, task.attempt, task.turn)
            for task in self.model.tasks.values()
            if task.sender.agent == agent and task.lease
            if (task.lease.worker, task.lease.claim_id) == (worker, "c1")
        }
        self.agree({(lease.task_id, lease.fence, lease.attempt, lease.turn) for lease in real}, predicted)

    def write(self, number: int, live: bool, foreign: bool, batch: list[Item]) -> None:
        if hold := self.hold(number, live):
            self._new_batch(hold, batch, foreign)

    def _new_batch(self, hold: Hold, batch: list[Item], foreign: bool = False) -> None:
        made = [(item, _event_of(item)) for item in batch]
        self.do(self._write, hold, foreign, made)

    def _write(self, hold: Hold, foreign: bool, made: list[tuple[Item, NewEvent]]) -> None:
        key = LeaseKey(self.foreign(hold.key.tenant, foreign), hold.key.task_id, hold.key.fence)
        real: object
        try:
            real = self.run(
                transitions.append(self.db, lease=key, worker_id=hold.worker, events=[event for _, event in made])
            )
        except (InvalidArgument, ProducerEventConflict) as error:
            real = Refused(error.reason, int(error.metadata["index"]))
        self.agree(real, self.model.append(key, [item for item, _ in made]))
        self.observe(self.model.tasks[key.task_id])

    def give_back(self, number: int, live: bool, foreign: bool, kind: str, delay: float | None) -> None:
        if (hold := self.hold(number, live)) is None:
            return
        self.do(
            self._give_back,
            LeaseKey(self.foreign(hold.key.tenant, foreign), hold.key.task_id, hold.key.fence),
            kind,
            delay,
        )

    def _give_back(self, key: LeaseKey, kind: str, delay: float | None) -> None:
        task = self.model.tasks[key.task_id]
        turn, was_live = task.turn, self._lives(key)
        if kind == "retry":
            real = self.run(transitions.retry(self.db, lease=key, error="boom", delay_seconds=delay))
        else:
            real = self.run(transitions.release(self.db, lease=key, delay_seconds=delay))
            self.releases[key.task_id, turn] += was_live and isinstance(real, LeaseEnded)
        self.agree(real, self.model.give_back(key, kind, ready=not delay))
        self.observe(task)

    def heartbeat(self, numbers: list[int], live: bool, foreign: bool, extends: bool) -> None:
        holds = [hold for hold in (self.hold(number, live) for number in numbers) if hold]
        keys = [LeaseKey(self.foreign(h.key.tenant, foreign), h.key.task_id, h.key.fence) for h in holds]
        self._heartbeat(keys, extends)

    def _heartbeat(self, keys: list[LeaseKey], extends: bool) -> None:
        real = self.run(leases.heartbeat(self.db, keys, HOUR if extends else 0))
        assert all((result.expires_at is not None) == result.ok for result in real)
        predicted = [self.model.heartbeat(key, extends) for key in keys]
        self.agree([(r.ok, r.signal, r.state) for r in real], [(r.ok, r.signal, r.state) for r in predicted])

    # What time and maintenance do ------------------------------------------------------------------------------------

    def time_passes(self, number: int, live: bool, what: str, reap: str) -> None:
        """Too late: the reaper has read what is due, and before it comes to it the worker's heartbeat arrives."""
        if (task := self.task(number, live, leased=what == "lease_until")) is None:
            return
        self.run(self._execute(PAST[what], task.sender.tenant, task.task_id))
        self.model.pass_time(task, what)
        if reap != "no":
            self.reap(at_once=False)
            if reap == "too late" and task.lease:
                self._heartbeat([LeaseKey(task.sender.tenant, task.task_id, task.lease.fence)], extends=True)
            self.reap_late()

    def reap(self, at_once: bool) -> None:
        """A pass of the reaper; not at once: it has read what is due, and comes to it later (``reap_late``)."""
        real = self.run(leases.due(self.db, 100))
        self.agree(sorted(map(repr, real)), sorted(map(repr, self.model.due())))
        self.old_dues = real
        if at_once:
            self.reap_late()

    def reap_late(self) -> None:
        for due in self.old_dues:
            self.agree(self.run(transitions.end_due(self.db, due)), self.model.end_due(due))
            self.observe(self.model.tasks[due.task_id])

    def forget(self, tenant: str) -> None:
        tenant = self.named(tenant)
        count = self.run(transitions.forget(self.db, tenant=tenant, older_seconds=-1, limit=100))
        self.agree(count, self.model.forget(tenant))

    def fail_deleted(self, number: int, live: bool) -> None:
        if task := self.task(number, live):
            real = self.run(transitions.fail_deleted(self.db, tenant=task.sender.tenant, task_id=task.task_id))
            self.agree(real, self.model.fail_deleted(task.sender.tenant, task.task_id))
            self.observe(task)

    # What stands -----------------------------------------------------------------------------------------------------

    def observe(self, task: Task) -> None:
        """The task as the ledger has it, with the events that have come since the last look, is the model's."""
        tenant, task_id = task.sender.tenant, task.task_id
        loaded, page, turns = self.run(self._read(tenant, task_id, self.seen.get(task_id, 0)))
        assert loaded
        assert page
        head = loaded.head
        assert head.fence > task.fence if task.fence_grows else head.fence >= task.fence
        task.fence, task.fence_grows = head.fence, False
        lease = task.lease
        self.agree(
            (head.state, head.turn, head.attempt, head.turns_queued, head.last_seq, head.terminal_seq, head.worker_id),
            (task.state, task.turn, task.attempt, len(task.behind), task.last_seq,
             task.last_seq if task.state.is_terminal else None, lease.worker if lease else None),
        )  # fmt: skip
        assert lease is None or lease.fence == head.fence
        self.agree([_entry(event) for event in page.events], task.log[self.seen.get(task_id, 0) :])
        self.agree([turn.state for turn in turns], [turn.state for turn in task.turns])
        self._check_content(task, loaded)
        self.seen[task_id] = task.last_seq

    def _check_content(self, task: Task, loaded: LoadedTask) -> None:
        shown = loaded.task
        assert shown["status"]["timestamp"] == loaded.head.status_at.isoformat("T", "milliseconds")[:23] + "Z"
        texts = {one["artifactId"]: [part["text"] for part in one["parts"]] for one in shown.get("artifacts", [])}
        self.agree(texts, {name: texts for name, (_, texts) in task.artifacts.items()})
        said = [one["messageId"] for one in shown["history"] if one["role"] == "ROLE_USER"]
        self.agree(said, list(dict.fromkeys(turn.message_id for turn in task.turns)))

    async def _read(self, tenant: str, task_id: UUID, after: int) -> tuple[Any, Any, Any]:
        return (
            await tasks.load(self.db, tenant, task_id),
            await events.read(self.db, tenant, task_id, after, 1000),
            await tasks.turns(self.db, tenant, task_id),
        )

    async def _execute(self, sql: LiteralString, tenant: str, *args: object) -> None:
        async with self.db.tenant(tenant) as connection:
            await connection.execute(sql, tenant, *args)

    def teardown(self) -> None:
        tenants = [self.named("a"), self.named("b")]
        if sys.exc_info()[0] is None:
            for task in self.model.tasks.values():
                self.observe(task)
            self.run(check_all(self.db, tenants, self.releases))
        for tenant in tenants:  # so that the next example's reaper finds its own work only
            self.run(self._execute("DELETE FROM queue WHERE tenant_id = $1", tenant))


def _ledger_keys(keys: Keys) -> LedgerKeys:
    return LedgerKeys(keys.message_id, keys.header, repr(keys.content).encode())


def _event_of(item: Item) -> NewEvent:
    if item.artifact:
        return chunk(item.text, artifact=item.artifact, append=item.append, last=item.last, event_id=item.event_id)
    if item.state is None:
        return reply(item.text, item.event_id)
    return status(item.state, item.event_id, item.text)


def _entry(event: Event) -> Entry:
    body = json.loads(event.body)
    shown = body.get("statusUpdate") or body.get("task")
    state = TaskState.parse(shown["status"]["state"]) if shown else None
    return Entry(event.kind, state, event.actor_kind, event.turn, event.attempt)
