"""Clients' messages: submit, follow-up, idempotency (resume-contract: Model, Duplicates; ledger.md: Turns)."""

import asyncio
import json
from dataclasses import replace
from uuid import uuid4

import pytest

from app.ledger import transitions
from app.ledger.inputs import Keys
from app.ledger.rows import AlreadyTerminal, Busy, ContextMismatch, IdempotencyClash, Sent, TaskMissing
from app.protocol.states import TaskState
from tests.support.ledger import QUICK, Bench, message, status


async def test_submit_makes_a_task_of_the_first_message(bench: Bench) -> None:
    sent = await bench.submit("hello", message_id="m-1")
    assert (sent.state, sent.turn, sent.last_seq, sent.replayed) == (TaskState.SUBMITTED, 1, 1, False)
    (event,) = await bench.log(sent.task_id)
    task = json.loads(event.body)["task"]
    assert event.kind == "task.submitted"
    assert (event.actor_kind, event.actor_id) == ("client", "u1")
    assert task["id"] == str(sent.task_id)
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert task["history"] == [
        {
            "taskId": str(sent.task_id),
            "contextId": sent.context_id,
            "messageId": "m-1",
            "role": "ROLE_USER",
            "parts": [{"text": "hello"}],
        }
    ]


async def test_task_ids_are_uuid_7_on_the_databases_clock(bench: Bench) -> None:
    before = await bench.db.call("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms")
    task_id = (await bench.submit()).task_id
    after = await bench.db.call("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms")
    assert (task_id.version, task_id.variant) == (7, "specified in RFC 4122")
    assert before["ms"] <= task_id.int >> 80 <= after["ms"]


async def test_a_client_given_context_is_taken_as_it_is(bench: Bench) -> None:
    odd = 'a "quoted" \\ context / ü'
    sent = await bench.submit(context_id=odd)
    assert sent.context_id == odd
    assert (await bench.load(sent.task_id)).task["contextId"] == odd


async def test_scenario_15_fifty_sends_of_one_message_make_one_task(bench: Bench) -> None:
    sent = await asyncio.gather(*(bench.submit(message_id="same") for _ in range(50)))
    assert len({one.task_id for one in sent}) == 1
    assert sum(not one.replayed for one in sent) == 1
    assert await bench.kinds(sent[0].task_id) == ["task.submitted"]


async def test_the_same_key_with_another_message_is_a_clash(bench: Bench) -> None:
    await bench.submit("one", message_id="same")
    body, _ = message("two", "same")
    outcome = await transitions.submit(
        bench.db, tenant="a", subject="u1", agent_id="x", context_id=None, message=body,
        keys=Keys("same", None, b"another"), settings=QUICK,
    )  # fmt: skip
    assert outcome == IdempotencyClash()


async def test_keys_are_per_subject_agent_and_tenant(bench: Bench) -> None:
    first = await bench.submit(message_id="same")
    others = [
        Bench(bench.db, tenant="b"),
        Bench(bench.db, subject="u2"),
        Bench(bench.db, agent="y"),
    ]
    made = [(await other.submit(message_id="same")).task_id for other in others]
    assert len({first.task_id, *made}) == 4


async def test_a_header_that_comes_later_stands_for_the_known_message(bench: Bench) -> None:
    first = await bench.submit(message_id="m-a")
    again = await bench.submit(message_id="m-a", header="h-1")
    assert (again.task_id, again.replayed) == (first.task_id, True)
    body, _ = message("another", "m-b")
    outcome = await transitions.submit(
        bench.db, tenant="a", subject="u1", agent_id="x", context_id=None, message=body,
        keys=Keys("m-b", "h-1", b"another"), settings=QUICK,
    )  # fmt: skip
    assert outcome == IdempotencyClash(), "the header is taken by the first message"


async def test_keys_that_stand_for_two_messages_clash_and_store_nothing(bench: Bench) -> None:
    body, _ = message("hi", "m-1")
    keys = Keys("m-1", "h-1", b"same hash")
    submit = {"tenant": "a", "subject": "u1", "agent_id": "x", "context_id": None, "message": body, "settings": QUICK}
    one = await transitions.submit(bench.db, keys=replace(keys, header=None), **submit)
    two = await transitions.submit(bench.db, keys=replace(keys, message_id=None), **submit)
    assert isinstance(one, Sent)
    assert isinstance(two, Sent)
    assert one.task_id != two.task_id
    assert await transitions.submit(bench.db, keys=keys, **submit) == IdempotencyClash()


@pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED])
async def test_a_message_resumes_a_pause(bench: Bench, state: TaskState) -> None:
    task_id = (await bench.submit()).task_id
    await bench.append(await bench.claim_one(), status(state))
    sent = await bench.send(task_id, "sku:A")
    assert (sent.turn, sent.state) == (2, TaskState.WORKING)
    lease = await bench.claim_one()
    assert (lease.turn, lease.attempt) == (2, 1)
    assert json.loads(lease.message_body)["message"]["parts"] == [{"text": "sku:A"}]


@pytest.mark.parametrize("claimed", [False, True])
async def test_a_message_to_a_live_task_queues_a_turn(bench: Bench, claimed: bool) -> None:
    task_id = (await bench.submit()).task_id
    if claimed:
        await bench.claim_one()
    sent = await bench.send(task_id)
    assert (sent.turn, sent.state) == (2, TaskState.WORKING if claimed else TaskState.SUBMITTED)
    assert (await bench.kinds(task_id))[-1] == "message.user"
    assert (await bench.load(task_id)).head.turns_queued == 1


async def test_on_busy_reject_stores_nothing(bench: Bench) -> None:
    task_id = (await bench.submit(settings=replace(QUICK, on_busy="reject"))).task_id
    assert await bench.send(task_id, message_id="again") == Busy()
    assert await bench.kinds(task_id) == ["task.submitted"]
    lease = await bench.claim_one()
    await bench.append(lease, status(TaskState.INPUT_REQUIRED))
    assert isinstance(await bench.send(task_id, message_id="again"), Sent), "its key was not kept by the refusal"


async def test_a_message_may_choose_to_be_rejected(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    assert await bench.send(task_id, on_busy="reject") == Busy()
    assert isinstance(await bench.send(task_id), Sent)


async def test_refusals_of_a_follow_up(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    assert await bench.send(uuid4()) == TaskMissing()
    assert await Bench(bench.db, tenant="b").send(task_id) == TaskMissing()
    assert await Bench(bench.db, agent="y").send(task_id) == TaskMissing()
    assert await bench.send(task_id, context_id="another") == ContextMismatch()
    await bench.append(await bench.claim_one(), status(TaskState.COMPLETED))
    assert await bench.send(task_id) == AlreadyTerminal(TaskState.COMPLETED, 4)
    assert await bench.kinds(task_id) == ["task.submitted", "turn.started", "status", "status"]


async def test_a_duplicate_is_judged_before_the_terminal_check(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    await bench.append(await bench.claim_one(), status(TaskState.INPUT_REQUIRED))
    first = await bench.send(task_id, message_id="again")
    await bench.append(await bench.claim_one(), status(TaskState.COMPLETED))
    again = await bench.send(task_id, message_id="again")
    assert (again.replayed, again.turn, again.state) == (True, first.turn, TaskState.COMPLETED)


async def test_concurrent_follow_ups_with_one_id_make_one_turn(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    sent = await asyncio.gather(*(bench.send(task_id, message_id="same") for _ in range(20)))
    assert {one.turn for one in sent} == {2}
    assert sum(not one.replayed for one in sent) == 1
