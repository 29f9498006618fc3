"""The state machine: each step is taken on the ledger and on the model, and what they answer and hold is compared.

test_model.py runs it. Tasks and leases are chosen by number, so what Hypothesis draws does not depend on the database.
"""

import json
from dataclasses import replace
from typing import Any

from hypothesis.stateful import initialize, rule

from app.errors import InvalidArgument, ProducerEventConflict
from app.ledger import leases, transitions
from app.ledger.inputs import Keys as LedgerKeys
from app.ledger.inputs import LeaseKey, NewEvent, TaskSettings
from app.ledger.rows import CancelPending, LeaseEnded, Sent
from tests.integration.ledger.comparison import Comparison, Hold
from tests.integration.ledger.courses import HOUR, MORE_MESSAGES, PAST, SETTINGS, STEPS
from tests.integration.ledger.model import Keys, Refused
from tests.integration.ledger.model_task import Item, Sender, Task, Turn
from tests.support.ledger import chunk, message, reply, status


class LedgerMachine(Comparison):
    """Every action is a method: clients', workers', and what time and maintenance do."""

    @initialize(settings=SETTINGS, messages=MORE_MESSAGES)
    def start(self, settings: TaskSettings, messages: int) -> None:
        """A task with some more messages already."""
        sender, no_keys = Sender(self.named("a"), "u1", self.named("x")), Keys(None, None, None)
        self._submit(sender, no_keys, "first", None, settings)
        task = self.task(0, live=False)
        assert task
        for _ in range(messages):
            self._send(task, sender, no_keys, "more", None, None)

    @rule(step=STEPS)
    def take(self, step: tuple[str, dict[str, Any]]) -> None:
        """One rule for all actions: of several rules Hypothesis leaves half out in each example (swarm testing), and a
        task whose claims or writes are left out does not get far."""
        name, arguments = step
        getattr(self, name)(**arguments)

    def go_on(self, number: int, batch: list[Item], settings: TaskSettings, messages: int) -> None:
        """Whatever brings a task forward, or else a new one: without this most courses would end early."""
        task = self.task(number, live=True)
        if task is None or task.state.is_terminal:
            self.start(settings, messages)
        elif task.lease:
            key = LeaseKey(task.sender.tenant, task.task_id, task.lease.fence)
            self._new_batch(Hold(key, task.lease.worker), batch)
        elif task.work:
            self.time_passes(number, live=True, what="run_at", reap="no")
            self.claim(task.sender.agent[0], "w1", limit=1, claim_id=None)
        else:
            self._send(task, task.sender, Keys(None, None, None), "go on", None, None)

    # What clients do -------------------------------------------------------------------------------------------------

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
            predicted = replace(predicted, seconds_left=real.seconds_left)
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
        key = LeaseKey(self.foreign(hold.key.tenant, foreign), hold.key.task_id, hold.key.fence)
        self.do(self._give_back, key, kind, delay)

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
        real = self.run(transitions.forget(self.db, tenant=tenant, older_seconds=-1, limit=100))
        self.agree(set(real), self.model.forget(tenant))

    def fail_deleted(self, number: int, live: bool) -> None:
        if task := self.task(number, live):
            real = self.run(transitions.fail_deleted(self.db, tenant=task.sender.tenant, task_id=task.task_id))
            self.agree(real, self.model.fail_deleted(task.sender.tenant, task.task_id))
            self.observe(task)


def _ledger_keys(keys: Keys) -> LedgerKeys:
    return LedgerKeys(keys.message_id, keys.header, repr(keys.content).encode())


def _event_of(item: Item) -> NewEvent:
    if item.artifact:
        return chunk(item.text, artifact=item.artifact, append=item.append, last=item.last, event_id=item.event_id)
    if item.state is None:
        return reply(item.text, item.event_id)
    return status(item.state, item.event_id, item.text)
