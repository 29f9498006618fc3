"""Cancel against complete (resume-contract): who wins, what the loser is told, what the log says."""

import asyncio
import json
import random
from collections import Counter
from dataclasses import replace

import asyncpg
import pytest

from app.ledger import leases, transitions
from app.ledger.rows import AlreadyTerminal, Applied, Canceled, CancelPending, TaskMissing
from app.protocol.events import RESUME_EXTENSION
from app.protocol.states import TaskState
from tests.support.ledger import QUICK, Bench, chunk, key_of, message, open_bench, status, until


async def test_a_waiting_task_is_canceled_at_once(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    assert await bench.cancel(task_id) == Canceled(2)
    log = await bench.log(task_id)
    assert (log[-1].kind, log[-1].actor_kind, log[-1].actor_id) == ("status", "client", "u1")
    assert await bench.claim() == []
    assert await bench.cancel(task_id) == AlreadyTerminal(TaskState.CANCELED, 2)


async def test_a_paused_task_is_canceled_at_once(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    await bench.append(await bench.claim_one(), status(TaskState.INPUT_REQUIRED))
    assert isinstance(await bench.cancel(task_id), Canceled)


SEND = "SELECT * FROM task_send($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
"""Without a push notification config."""


async def test_a_task_that_is_resumed_and_leased_meanwhile_is_asked_first(bench: Bench) -> None:
    """The cancel looks for a queue row, finds none, and waits for the task, which a message and a claim hold."""
    task_id = (await bench.submit()).task_id
    await bench.append(await bench.claim_one(), status(TaskState.INPUT_REQUIRED))
    body, message_id = message("go on")
    owner = await asyncpg.connect(bench.db.dsn)
    async with owner.transaction():
        await owner.fetch(SEND, "a", "u1", "x", task_id, None, body, message_id, None, b"hash", None)
        canceling = asyncio.create_task(bench.cancel(task_id))
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        await until(lambda: owner.fetchval(waiting))
        assert await owner.fetch("SELECT lease_start('a', $1, clock_timestamp(), 'w1', NULL, NULL)", task_id)
    await owner.close()
    assert isinstance(await canceling, CancelPending)
    assert "cancel.requested" in await bench.kinds(task_id)


async def test_a_leased_task_is_asked_first(bench: Bench) -> None:
    task_id = (await bench.submit(settings=replace(QUICK, cancel_grace_seconds=7))).task_id
    lease = await bench.claim_one()
    pending = await bench.cancel(task_id)
    assert isinstance(pending, CancelPending)
    assert pending.seconds_left == 7
    last = (await bench.log(task_id))[-1]
    update = json.loads(last.body)["statusUpdate"]
    assert last.kind == "cancel.requested"
    assert update["status"]["state"] == "TASK_STATE_WORKING"
    assert update["metadata"][RESUME_EXTENSION]["cancelRequestedAt"] == update["status"]["timestamp"]
    joined = await bench.cancel(task_id)
    assert isinstance(joined, CancelPending)
    assert joined.seconds_left <= 7
    assert len(await bench.log(task_id)) == last.seq, "a second cancel joins the first"
    told = await bench.append(lease, status(TaskState.WORKING))
    assert told.signal == "cancel"
    assert (await bench.append(lease, status(TaskState.CANCELED))).state is TaskState.CANCELED


async def test_the_worker_may_still_win(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.cancel(task_id)
    assert (await bench.append(lease, status(TaskState.COMPLETED))).state is TaskState.COMPLETED
    assert await bench.cancel(task_id) == AlreadyTerminal(TaskState.COMPLETED, 5)


async def test_scenario_22_a_worker_that_ignores_cancel(bench: Bench) -> None:
    task_id = (await bench.submit(settings=replace(QUICK, cancel_grace_seconds=0.05))).task_id
    lease = await bench.claim_one()
    await bench.cancel(task_id)
    assert await until(bench.reap) == ["cancel"]
    late = await bench.append(lease, status(TaskState.COMPLETED))
    assert late == AlreadyTerminal(TaskState.CANCELED, 5)
    (beat,) = await leases.heartbeat(bench.db, [key_of(lease)], None)
    assert (beat.ok, beat.state) == (False, TaskState.CANCELED)


@pytest.mark.parametrize("how", ["retry", "release", "expire", "pause", "completed with a turn queued"])
async def test_a_lease_that_ends_while_a_cancel_is_pending_makes_the_task_canceled(bench: Bench, how: str) -> None:
    task_id = (await bench.submit(settings=replace(QUICK, cancel_grace_seconds=60))).task_id
    lease = await bench.claim_one(seconds=0.01 if how == "expire" else None)
    if how == "completed with a turn queued":
        await bench.send(task_id)
    await bench.cancel(task_id)
    match how:
        case "retry":
            await transitions.retry(bench.db, lease=key_of(lease), error="x", delay_seconds=None)
        case "release":
            await transitions.release(bench.db, lease=key_of(lease), delay_seconds=None)
        case "expire":
            assert await until(bench.reap) == ["expired"]
        case "pause":
            told = await bench.append(lease, status(TaskState.INPUT_REQUIRED))
            assert (told.state, told.lease_ended) == (TaskState.CANCELED, True)
        case _:
            told = await bench.append(lease, chunk("result"), status(TaskState.COMPLETED))
            assert (told.state, told.lease_ended) == (TaskState.CANCELED, True)
    assert await bench.state(task_id) is TaskState.CANCELED
    assert await bench.claim() == []


async def test_a_foreign_cancel_finds_nothing(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    assert await Bench(bench.db, tenant="b").cancel(task_id) == TaskMissing()
    assert await bench.state(task_id) is TaskState.SUBMITTED


async def test_scenario_21_four_hundred_cancel_complete_pairs(database_url: str) -> None:
    """Two processes' pools race; one terminal event each, both sides told the truth, nothing after it."""
    async with open_bench(database_url) as left, open_bench(database_url) as right:
        settings = replace(QUICK, cancel_grace_seconds=0)
        ids = [(await left.submit(settings=settings)).task_id for _ in range(400)]
        held = {lease.task_id: lease for _ in range(4) for lease in await right.claim(limit=100)}
        rng = random.Random(7)

        async def race(task_id) -> tuple[object, object]:
            lease = held[task_id]

            async def client() -> object:
                await asyncio.sleep(rng.random() * 0.002)
                outcome = await left.cancel(task_id)
                if isinstance(outcome, CancelPending):
                    await left.reap()
                    outcome = await left.cancel(task_id)
                return outcome

            async def worker() -> object:
                await asyncio.sleep(rng.random() * 0.006)
                return await right.append(lease, status(TaskState.COMPLETED))

            return await asyncio.gather(client(), worker())

        winners = Counter[str]()
        for start in range(0, len(ids), 8):
            batch = ids[start : start + 8]
            for task_id, (client, worker) in zip(batch, await asyncio.gather(*map(race, batch)), strict=True):
                log = await left.log(task_id)
                state = await left.state(task_id)
                ends = [event for event in log if json.loads(event.body).get("statusUpdate", {}).get("status", {})
                        .get("state") in ("TASK_STATE_COMPLETED", "TASK_STATE_CANCELED")]  # fmt: skip
                assert [event.seq for event in ends] == [log[-1].seq]
                assert isinstance(client, AlreadyTerminal)
                assert client.state is state
                if state is TaskState.COMPLETED:
                    assert isinstance(worker, Applied)
                else:
                    assert worker == AlreadyTerminal(TaskState.CANCELED, log[-1].seq)
                winners[state.name] += 1
        assert winners["COMPLETED"] > 0
        assert winners["CANCELED"] > 0
