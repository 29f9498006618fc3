"""The state machine's ground: a ledger and a model side by side, and how they are compared. Used by machine.py."""

import asyncio
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, LiteralString, NamedTuple, TypeVar
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine

from app.ledger import events, tasks
from app.ledger.inputs import LeaseKey
from app.ledger.pool import Database
from app.ledger.rows import Due, Event, EventPage, LoadedTask
from app.protocol.states import TaskState
from tests.integration.ledger.invariants import check_all
from tests.integration.ledger.model import Model
from tests.integration.ledger.model_task import Entry, Task

T = TypeVar("T")
_examples = itertools.count(1)


class Hold(NamedTuple):
    """A lease as its worker remembers it, for good."""

    key: LeaseKey
    worker: str


class Comparison(RuleBasedStateMachine):
    """One example: two tenants, two agents and their tasks, under names that no other example uses."""

    def __init__(self, runner: asyncio.Runner, db: Database) -> None:
        super().__init__()
        self.runner, self.db, self.model = runner, db, Model()
        self.suffix = f"-{next(_examples)}"
        self.seen: dict[UUID, tuple[int, list[str]]] = {}
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
        """The tasks counted from the newest; ``live``, ``leased``: of those that are not terminal, that a worker holds,
        if there are such."""
        made = list(self.model.tasks.values())
        made = [task for task in made if live and not task.state.is_terminal] or made
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

    def observe(self, task: Task, thorough: bool = False) -> None:
        """The task as the ledger has it, with the events that have come since the last look, is the model's. Turns are
        read when the model's have changed, and in the end (``thorough``)."""
        seq, turns = self.seen.get(task.task_id, (0, []))
        loaded, page = self.run(self._read(task, 0 if thorough else seq))
        assert loaded
        assert page
        head, lease = loaded.head, task.lease
        assert head.fence > task.fence if task.fence_grows else head.fence >= task.fence
        assert lease is None or lease.fence == head.fence
        task.fence, task.fence_grows = head.fence, False
        self.agree(
            (head.state, head.turn, head.attempt, head.turns_queued, head.last_seq, head.terminal_seq, head.worker_id),
            (task.state, task.turn, task.attempt, len(task.behind), task.last_seq,
             task.last_seq if task.state.is_terminal else None, lease.worker if lease else None),
        )  # fmt: skip
        self.agree([_entry(event) for event in page.events], task.log[0 if thorough else seq :])
        self._check_content(task, loaded)
        states = [turn.state for turn in task.turns]
        if thorough or states != turns:
            real = self.run(tasks.turns(self.db, task.sender.tenant, task.task_id))
            self.agree([turn.state for turn in real], states)
        self.seen[task.task_id] = (task.last_seq, states)

    def _check_content(self, task: Task, loaded: LoadedTask) -> None:
        shown = loaded.task
        assert shown["status"]["timestamp"] == loaded.head.status_at.isoformat("T", "milliseconds")[:23] + "Z"
        texts = {one["artifactId"]: [part["text"] for part in one["parts"]] for one in shown.get("artifacts", [])}
        self.agree(texts, {name: texts for name, (_, texts) in task.artifacts.items()})
        said = [one["messageId"] for one in shown["history"] if one["role"] == "ROLE_USER"]
        self.agree(said, [turn.message_id for turn in task.turns])

    async def _read(self, task: Task, after: int) -> tuple[LoadedTask | None, EventPage | None]:
        tenant = task.sender.tenant
        return (
            await tasks.load(self.db, tenant, task.task_id),
            await events.read(self.db, tenant, task.task_id, after, 1000),
        )

    async def _execute(self, sql: LiteralString, tenant: str, *args: object) -> None:
        async with self.db.tenant(tenant) as connection:
            await connection.execute(sql, tenant, *args)

    def teardown(self) -> None:
        tenants = [self.named("a"), self.named("b")]
        if sys.exc_info()[0] is None:
            for task in self.model.tasks.values():
                self.observe(task, thorough=True)
            self.run(check_all(self.db, tenants, self.releases))
        for tenant in tenants:  # so that the next example's reaper finds its own work only
            self.run(self._execute("DELETE FROM queue WHERE tenant_id = $1", tenant))


def _entry(event: Event) -> Entry:
    body = json.loads(event.body)
    shown = body.get("statusUpdate") or body.get("task")
    state = TaskState.parse(shown["status"]["state"]) if shown else None
    return Entry(event.kind, state, event.actor_kind, event.turn, event.attempt)
