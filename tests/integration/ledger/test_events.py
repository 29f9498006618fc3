"""Workers' events: the event table of native-api.md transition by transition, artifacts, duplicates, direct replies."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from app.errors import ArtifactClosed, ArtifactUnknown, InvalidTransition, ProducerEventConflict
from app.ledger import events, tasks, transitions
from app.ledger.rows import AlreadyTerminal, Applied, Canceled, StaleLease, TaskMissing
from app.protocol.events import RESUME_EXTENSION
from app.protocol.states import TaskState
from tests.support.ledger import Bench, chunk, key_of, reply, status


async def body(bench: Bench, task_id: Any, seq: int) -> dict[str, Any]:
    return json.loads((await bench.log(task_id))[seq - 1].body)


async def test_every_claim_appends_working_and_the_first_one_starts_the_turn(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one("w7")
    await transitions.retry(bench.db, lease=key_of(lease), error="boom", delay_seconds=None)
    await bench.claim_one("w8")
    log = await bench.log(task_id)
    assert [event.kind for event in log] == ["task.submitted", "turn.started", "status", "status", "status"]
    assert [event.attempt for event in log] == [0, 1, 1, 1, 2]
    assert [(event.actor_kind, event.actor_id) for event in log[2:]] == [
        ("worker", "w7"),
        ("broker", ""),
        ("worker", "w8"),
    ]
    first, failed = json.loads(log[2].body)["statusUpdate"], json.loads(log[3].body)["statusUpdate"]
    assert first["status"]["state"] == "TASK_STATE_WORKING"
    assert first["metadata"][RESUME_EXTENSION] == {"turn": 1, "attempt": 1}
    assert failed["metadata"][RESUME_EXTENSION] == {"turn": 1, "attempt": 1, "reason": "RETRY", "error": "boom"}


async def test_a_message_that_resumes_appends_the_message_then_working_by_the_broker(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    await bench.append(await bench.claim_one(), status(TaskState.INPUT_REQUIRED, text="which?"))
    await bench.send(task_id)
    log = await bench.log(task_id)
    assert [event.kind for event in log[3:]] == ["status", "message.user", "status"]
    assert [(event.actor_kind, event.turn, event.attempt) for event in log[4:]] == [("client", 2, 0), ("broker", 2, 0)]


async def test_completed_with_a_turn_queued_ends_the_turn(bench: Bench) -> None:
    """Scenario 26: the task stays WORKING and the next turn is claimed with its message."""
    task_id = (await bench.submit("one")).task_id
    lease = await bench.claim_one()
    await bench.send(task_id, "two")
    ended = await bench.append(lease, status(TaskState.COMPLETED, text="first answer"))
    assert (ended.state, ended.turn_ended, ended.lease_ended) == (TaskState.WORKING, True, True)
    log = await bench.log(task_id)
    assert log[-1].kind == "turn.ended"
    update = json.loads(log[-1].body)["statusUpdate"]
    assert update["status"]["state"] == "TASK_STATE_WORKING"
    assert update["status"]["message"]["role"] == "ROLE_AGENT"
    second = await bench.claim_one()
    assert (second.turn, second.attempt) == (2, 1)
    assert second.fence > lease.fence
    assert json.loads(second.message_body)["message"]["parts"] == [{"text": "two"}]
    done = await bench.append(second, status(TaskState.COMPLETED))
    assert (done.state, done.turn_ended) == (TaskState.COMPLETED, False)


async def test_a_bare_input_required_is_answered_by_the_queued_message(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.send(task_id, "sku:A")
    ended = await bench.append(lease, status(TaskState.INPUT_REQUIRED, text="which?"))
    assert (ended.state, ended.turn_ended, ended.lease_ended) == (TaskState.WORKING, True, True)
    log = await bench.log(task_id)
    assert [json.loads(event.body)["statusUpdate"]["status"]["state"] for event in log[-2:]] == [
        "TASK_STATE_INPUT_REQUIRED",
        "TASK_STATE_WORKING",
    ]
    assert log[-1].actor_kind == "broker"
    assert (await bench.claim_one()).turn == 2


async def test_auth_required_waits_although_a_turn_is_queued(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.send(task_id, "queued")
    ended = await bench.append(lease, status(TaskState.AUTH_REQUIRED))
    assert (ended.state, ended.turn_ended) == (TaskState.AUTH_REQUIRED, False)
    assert await bench.claim() == []
    resumed = await bench.send(task_id, "authorized")
    lease = await bench.claim_one()
    assert lease.turn == resumed.turn == 3, "the answer runs before what was queued earlier"
    await bench.append(lease, status(TaskState.COMPLETED))
    assert (await bench.claim_one()).turn == 2


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED])
async def test_other_ends_cancel_the_queued_turns(bench: Bench, state: TaskState) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.send(task_id)
    ended = await bench.append(lease, status(state))
    assert (ended.state, ended.turn_ended, ended.lease_ended) == (state, False, True)
    assert (await bench.kinds(task_id))[-1] == "status"
    assert await bench.claim() == []
    assert [turn.state for turn in await tasks.turns(bench.db, "a", task_id)][1] == "canceled"


async def test_nothing_follows_the_terminal_event(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.append(lease, status(TaskState.COMPLETED))
    terminal = AlreadyTerminal(TaskState.COMPLETED, 4)
    assert await bench.append(lease, status(TaskState.WORKING)) == terminal
    assert await bench.append(lease, status(TaskState.FAILED)) == terminal
    assert await bench.cancel(task_id) == terminal
    assert await transitions.retry(bench.db, lease=key_of(lease), error="x", delay_seconds=None) == terminal
    assert len(await bench.log(task_id)) == 4


async def test_chunks_and_replacement(bench: Bench) -> None:
    """adk-python#6686: "A:" then append "3" gives A:3; append=false replaces."""
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.append(lease, chunk("A:"), chunk("3", append=True, last=True))
    assert (await bench.load(task_id)).task["artifacts"][0]["parts"] == [{"text": "A:"}, {"text": "3"}]
    assert (await bench.kinds(task_id))[-2:] == ["artifact.replace", "artifact.delta"]
    await bench.append(lease, chunk("new"), chunk("er", append=True))
    assert (await bench.load(task_id)).task["artifacts"][0]["parts"] == [{"text": "new"}, {"text": "er"}]


async def test_append_to_an_unknown_or_closed_artifact_is_refused_whole(bench: Bench) -> None:
    """a2a-python#1038, A2A#1231: refused, not dropped; the batch leaves nothing."""
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    with pytest.raises(ArtifactUnknown) as unknown:
        await bench.append(lease, status(TaskState.WORKING), chunk("x", append=True))
    assert unknown.value.metadata == {"index": "1"}
    await bench.append(lease, chunk("x", last=True))
    with pytest.raises(ArtifactClosed):
        await bench.append(lease, chunk("y", artifact="B"), chunk("z", append=True))
    assert await bench.kinds(task_id) == ["task.submitted", "turn.started", "status", "artifact.replace"]


async def test_duplicates_answer_their_old_seqs(bench: Bench) -> None:
    await bench.submit()
    lease = await bench.claim_one()
    first = await bench.append(lease, chunk("A:", event_id="e1"))
    both = await bench.append(lease, chunk("A:", event_id="e1"), chunk("3", append=True, event_id="e2"))
    assert (both.seqs, both.duplicates, both.last_seq) == ([first.seqs[0], first.seqs[0] + 1], [0], first.seqs[0] + 1)


async def test_another_body_under_a_known_id_is_a_conflict(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.append(lease, chunk("A:", event_id="e1"))
    with pytest.raises(ProducerEventConflict):
        await bench.append(lease, chunk("new", artifact="B", event_id="e0"), chunk("B:", event_id="e1"))
    assert len(await bench.log(task_id)) == 4


async def test_scenario_28_a_finishing_batch_sent_again(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    batch = [chunk("A:", event_id="e1"), status(TaskState.COMPLETED, "e2")]
    first = await bench.append(lease, *batch)
    again = await bench.append(lease, *batch)
    assert again == Applied(first.seqs, TaskState.COMPLETED, first.last_seq, False, True, [0, 1], None)
    assert isinstance(await bench.append(lease, batch[0], status(TaskState.FAILED, "e3")), AlreadyTerminal)
    with pytest.raises(ProducerEventConflict):
        await bench.append(lease, status(TaskState.FAILED, "e2"))
    assert len(await bench.log(task_id)) == 5


async def test_a_batch_that_ended_a_turn_sent_again_after_the_next_claim(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.send(task_id)
    done = status(TaskState.COMPLETED, "e1")
    first = await bench.append(lease, done)
    await bench.claim_one()
    again = await bench.append(lease, done)
    assert (again.seqs, again.turn_ended, again.lease_ended) == (first.seqs, True, True)
    assert await bench.append(lease, status(TaskState.COMPLETED, "e9")) == StaleLease(TaskState.WORKING, 7)


async def test_an_ending_event_known_from_an_earlier_lease_does_not_end_this_one(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    ask = status(TaskState.INPUT_REQUIRED, "ask")
    first = await bench.append(await bench.claim_one(), ask)
    await bench.send(task_id)
    lease = await bench.claim_one()
    again = await bench.append(lease, chunk("x", event_id="e1"), ask)
    assert (again.seqs[1], again.duplicates, again.lease_ended) == (first.seqs[0], [1], False)
    assert (await bench.append(lease, status(TaskState.COMPLETED))).state is TaskState.COMPLETED


async def test_a_known_ending_event_leaves_the_times_of_the_new_ones_right(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    ask = status(TaskState.INPUT_REQUIRED, "ask")
    await bench.append(await bench.claim_one(), ask)
    await bench.send(task_id)
    await bench.append(await bench.claim_one(), status(TaskState.WORKING, "e1"), ask)
    last = (await bench.log(task_id))[-1]
    assert (last.kind, (await bench.load(task_id)).head.status_at) == ("status", last.at)


async def test_a_batch_that_a_pending_cancel_followed_is_answered_again_alike(bench: Bench) -> None:
    """Not as one that ended its turn only: the task is CANCELED, and so it was answered the first time."""
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.send(task_id)
    await bench.cancel(task_id)
    first = await bench.append(lease, status(TaskState.COMPLETED, "e1"))
    assert (first.state, first.turn_ended, first.lease_ended) == (TaskState.CANCELED, False, True)
    again = await bench.append(lease, status(TaskState.COMPLETED, "e1"))
    assert again == replace(first, duplicates=[0], signal=None)
    assert (await bench.kinds(task_id))[-2:] == ["turn.ended", "status"]


async def test_a_batch_that_ended_a_turn_is_answered_again_alike_after_a_cancel(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.send(task_id)
    await bench.append(lease, status(TaskState.COMPLETED, "e1"))
    assert isinstance(await bench.cancel(task_id), Canceled)
    again = await bench.append(lease, status(TaskState.COMPLETED, "e1"))
    assert (again.turn_ended, again.state) == (True, TaskState.CANCELED)


async def test_a_known_direct_reply_is_a_duplicate_before_it_is_a_wrong_one(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.send(task_id)
    first = await bench.append(lease, reply("pong", "e1"))
    second = await bench.claim_one()
    await bench.append(second, status(TaskState.WORKING))
    again = await bench.append(second, reply("pong", "e1"))
    assert (again.seqs, again.duplicates, again.lease_ended) == (first.seqs, [0], False)


async def test_a_direct_reply_completes_the_task_and_stands_alone(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    with pytest.raises(InvalidTransition):
        await bench.append(lease, status(TaskState.WORKING), reply())
    done = await bench.append(lease, reply("pong"))
    assert done.state is TaskState.COMPLETED
    assert (await bench.load(task_id)).task["status"]["message"]["parts"] == [{"text": "pong"}]


async def test_a_direct_reply_after_another_event_of_the_turn_is_refused(bench: Bench) -> None:
    await bench.submit()
    lease = await bench.claim_one()
    await bench.append(lease, status(TaskState.WORKING))
    with pytest.raises(InvalidTransition):
        await bench.append(lease, reply())


async def test_a_direct_reply_in_a_later_turn(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    await bench.append(await bench.claim_one(), status(TaskState.INPUT_REQUIRED))
    await bench.send(task_id)
    assert (await bench.append(await bench.claim_one(), reply())).state is TaskState.COMPLETED


async def test_times_of_states_are_the_events_times(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    await bench.append(await bench.claim_one(), status(TaskState.COMPLETED))
    last = (await bench.log(task_id))[-1]
    shown = json.loads(last.body)["statusUpdate"]["status"]["timestamp"]
    loaded = await bench.load(task_id)
    assert shown == last.at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{last.at.microsecond // 1000:03}Z"
    assert loaded.head.status_at == last.at


async def test_a_long_task_is_read_through_its_snapshot(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.append(lease, chunk("0"), *(chunk(str(n), append=True) for n in range(1, 200)))
    whole = (await bench.load(task_id)).task
    await bench.append(lease, chunk("tail", append=True))
    again = (await bench.load(task_id)).task
    assert again["artifacts"][0]["parts"] == [*whole["artifacts"][0]["parts"], {"text": "tail"}]
    async with bench.db.tenant("a") as connection:
        rows = await connection.fetch("SELECT seq FROM task_snapshots WHERE tenant_id = 'a'")
    assert [row["seq"] for row in rows] == [203]


async def test_a_foreign_tenant_writes_nothing(bench: Bench) -> None:
    await bench.submit()
    lease = key_of(await bench.claim_one())
    foreign = type(lease)("b", lease.task_id, lease.fence)
    assert await bench.append(foreign, status(TaskState.COMPLETED)) == TaskMissing()


async def test_a_read_brings_no_more_bytes_than_it_may(bench: Bench) -> None:
    """Bodies are as large as workers make them: a page ends where they get too large, never before its first event."""
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    for name in "BCDE":
        await bench.append(lease, chunk("x" * 3_000_000, artifact=name))
    found = []
    while (page := await events.read(bench.db, "a", task_id, len(found), 1000)) and page.events:
        assert page.last_seq == 7
        assert len(page.events) == 1 or sum(len(event.body) for event in page.events) <= events.BYTES_AT_ONCE
        found += [event.seq for event in page.events]
    assert found == [1, 2, 3, 4, 5, 6, 7]


async def test_a_tasks_times_never_go_back(bench: Bench) -> None:
    """The time of a write is read under the task's lock: what waited for it is not older than what it waited for."""
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await asyncio.gather(*(bench.append(lease, status(TaskState.WORKING)) for _ in range(40)), bench.send(task_id))
    log = await bench.log(task_id)
    assert [event.at for event in log] == sorted(event.at for event in log)
    assert (await bench.load(task_id)).head.status_at == max(event.at for event in log if event.kind == "status")
