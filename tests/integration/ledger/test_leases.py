"""Leases: claim, fairness, heartbeat, expiry, retry, release, deadlines (ledger.md: Algorithm)."""

import json
from dataclasses import replace
from uuid import UUID

import pytest

from app.ledger import leases, transitions
from app.ledger.inputs import LeaseKey
from app.ledger.rows import AlreadyTerminal, LeaseEnded, StaleLease
from app.protocol.events import RESUME_EXTENSION
from app.protocol.states import TaskState
from tests.support.ledger import QUICK, Bench, chunk, key_of, status, until


async def lapse(bench: Bench, task_id: UUID) -> None:
    """Put a lease's end into the past, by the database's own clock; a short one, for the reaper spares leases that are
    longer than the server has been up."""
    async with bench.db.tenant("a", "b") as connection:
        await connection.execute(
            "UPDATE queue SET lease_until = clock_timestamp() - interval '1 s', lease_seconds = 0 WHERE task_id = $1",
            task_id,
        )


async def test_claims_come_by_priority_then_age_one_at_a_time(bench: Bench) -> None:
    low = (await bench.submit(settings=replace(QUICK, priority=1))).task_id
    old = (await bench.submit()).task_id
    young = (await bench.submit()).task_id
    high = (await bench.submit(settings=replace(QUICK, priority=9))).task_id
    async with bench.db.tenant("a") as connection:  # two submits may fall into one millisecond
        await connection.execute("UPDATE queue SET run_at = run_at - interval '1 s' WHERE task_id = $1", old)
    assert [(await bench.claim_one()).task_id for _ in range(4)] == [high, old, young, low]


async def test_a_delayed_task_waits_for_its_time(bench: Bench) -> None:
    await bench.submit(settings=replace(QUICK, delay_seconds=0.2))
    assert await bench.claim() == []
    assert await until(bench.claim)


async def test_two_tenants_share_an_agent_evenly(bench: Bench) -> None:
    other = Bench(bench.db, tenant="b")
    for _ in range(8):
        await bench.submit()
    for _ in range(4):
        await other.submit()
    order = [(await bench.claim_one()).tenant for _ in range(8)]
    assert order[:2].count("b") == 1
    assert order.count("b") in (3, 4), order


async def test_idle_lanes_are_passed_over_unlocked(bench: Bench) -> None:
    async with bench.db.tenant("b") as connection:
        await connection.execute("INSERT INTO lanes (tenant_id, agent_id, fair_key) VALUES ('b', 'x', '')")
    await bench.submit()
    assert len(await bench.claim(limit=2)) == 1
    async with bench.db.tenant("b") as connection:
        (lane,) = await connection.fetch("SELECT xmax::text AS locked_by FROM lanes")
    assert lane["locked_by"] == "0"


async def test_more_fair_keys_are_no_greater_share(bench: Bench) -> None:
    other = Bench(bench.db, tenant="b")
    for number in range(60):
        await bench.submit(settings=replace(QUICK, fair_key=f"k{number % 6}"))
        await other.submit()
    order = [(await bench.claim_one()).tenant for _ in range(60)]
    assert 25 <= order[10:].count("b") <= 35, order


async def test_fair_keys_beyond_the_lanes_of_a_tenant_share_them(bench: Bench) -> None:
    async def submit_all() -> list[str]:
        sent = [await bench.submit(settings=replace(QUICK, fair_key=f"k{number}")) for number in range(80)]
        async with bench.db.tenant("a") as connection:
            rows = await connection.fetch("SELECT task_id, fair_key FROM tasks")
        lane = {row["task_id"]: row["fair_key"] for row in rows}
        return [lane[one.task_id] for one in sent]

    first = await submit_all()
    assert first[:63] == [f"k{number}" for number in range(63)]
    assert set(first[63:]) < set(first[:63])
    assert len(set(first[63:])) > 5, "spread, not all in one"
    assert await submit_all() == first, "a key keeps its lane"
    await bench.submit()
    assert len(await bench.claim(limit=100)) + len(await bench.claim(limit=100)) == 161


async def test_a_lane_that_was_idle_does_not_crowd_out_the_others(bench: Bench) -> None:
    other = Bench(bench.db, tenant="b")
    for _ in range(20):
        await bench.submit()
    for _ in range(10):
        await bench.claim_one()
    for _ in range(10):
        await other.submit()
    order = [(await bench.claim_one()).tenant for _ in range(6)]
    assert order.count("a") >= 2, "b is not served until it has caught up ten"


async def test_heartbeat_extends_and_tells_what_was_lost(bench: Bench) -> None:
    await bench.submit()
    await bench.submit()
    first, second = await bench.claim(limit=2, seconds=5)
    await bench.append(second, status(TaskState.COMPLETED))
    keys = [key_of(second), LeaseKey("a", first.task_id, first.fence + 1), key_of(first)]
    gone, wrong, beat = await leases.heartbeat(bench.db, keys, 60)
    assert (gone.ok, gone.state) == (False, TaskState.COMPLETED)
    assert (wrong.ok, wrong.state) == (False, TaskState.WORKING)
    assert beat.ok
    assert beat.expires_at is not None
    assert (beat.expires_at - first.expires_at).total_seconds() > 50


async def test_a_late_heartbeat_revives_a_lease_that_nobody_reaped(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await lapse(bench, task_id)
    (beat,) = await leases.heartbeat(bench.db, [key_of(lease)], 30)
    assert beat.ok
    assert await bench.reap() == []
    assert (await bench.append(lease, status(TaskState.COMPLETED))).state is TaskState.COMPLETED


async def test_scenario_27_the_old_worker_writes_nothing_after_expiry(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    old = await bench.claim_one()
    await lapse(bench, task_id)
    assert await bench.reap() == ["expired"]
    log = await bench.log(task_id)
    facts = json.loads(log[-1].body)["statusUpdate"]["metadata"][RESUME_EXTENSION]
    assert facts == {"reason": "LEASE_EXPIRED", "turn": 1, "attempt": 1}
    for event in (status(TaskState.WORKING), chunk("x"), status(TaskState.COMPLETED), status(TaskState.INPUT_REQUIRED)):
        assert await bench.append(old, event) == StaleLease(TaskState.WORKING, log[-1].seq)
    (beat,) = await leases.heartbeat(bench.db, [key_of(old)], None)
    assert not beat.ok
    retried = await transitions.retry(bench.db, lease=key_of(old), error="x", delay_seconds=None)
    assert retried == StaleLease(TaskState.WORKING, log[-1].seq)
    assert await bench.log(task_id) == log
    new = await bench.claim_one("w2")
    assert (new.attempt, new.turn) == (2, 1)
    assert new.fence > old.fence
    assert await bench.append(old, status(TaskState.COMPLETED)) == StaleLease(TaskState.WORKING, new.last_seq)


async def test_attempts_run_out(bench: Bench) -> None:
    task_id = (await bench.submit(settings=replace(QUICK, max_attempts=2))).task_id
    await transitions.retry(bench.db, lease=key_of(await bench.claim_one()), error="boom 1", delay_seconds=None)
    last = key_of(await bench.claim_one())
    ended = await transitions.retry(bench.db, lease=last, error="boom 2", delay_seconds=None)
    assert isinstance(ended, LeaseEnded)
    assert ended.state is TaskState.FAILED
    shown = json.loads((await bench.log(task_id))[-1].body)["statusUpdate"]
    assert shown["metadata"][RESUME_EXTENSION] == {"reason": "ATTEMPTS_EXHAUSTED", "turn": 1, "attempt": 2}
    assert "boom 2" in shown["status"]["message"]["parts"][0]["text"]
    again = await transitions.retry(bench.db, lease=last, error="boom 2", delay_seconds=None)
    assert again == ended, "repeated under the same fence"


async def test_a_crash_on_the_last_attempt_fails_the_task(bench: Bench) -> None:
    task_id = (await bench.submit(settings=replace(QUICK, max_attempts=1))).task_id
    await bench.claim_one()
    await lapse(bench, task_id)
    assert await bench.reap() == ["expired"]
    assert await bench.state(task_id) is TaskState.FAILED


async def test_release_is_silent_and_does_not_count(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    before = await bench.kinds(task_id)
    released = await transitions.release(bench.db, lease=key_of(lease), delay_seconds=None)
    assert await transitions.release(bench.db, lease=key_of(lease), delay_seconds=None) == released
    assert await bench.kinds(task_id) == before
    again = await bench.claim_one()
    assert (again.attempt, again.turn) == (1, 1)
    late = await transitions.release(bench.db, lease=key_of(lease), delay_seconds=None)
    assert isinstance(late, LeaseEnded), "a repeat under the same fence is told the same, and ends nothing"
    assert (await bench.append(again, status(TaskState.COMPLETED))).state is TaskState.COMPLETED


@pytest.mark.parametrize("give_back", ["retry", "release"])
async def test_a_repeat_is_told_the_same_when_a_client_has_canceled_since(bench: Bench, give_back: str) -> None:
    task_id = (await bench.submit()).task_id
    key = key_of(await bench.claim_one())

    async def repeat() -> object:
        if give_back == "retry":
            return await transitions.retry(bench.db, lease=key, error="x", delay_seconds=None)
        return await transitions.release(bench.db, lease=key, delay_seconds=None)

    await repeat()
    canceled = await bench.cancel(task_id)
    assert await repeat() == LeaseEnded(TaskState.CANCELED, canceled.last_seq)


async def test_retry_backs_off(bench: Bench) -> None:
    await bench.submit(settings=replace(QUICK, backoff_seconds=100, max_backoff_seconds=300))
    await transitions.retry(bench.db, lease=key_of(await bench.claim_one()), error="x", delay_seconds=None)
    assert await bench.claim() == [], "full jitter over 100 s is practically never under 10 ms"
    figures = await leases.queue_figures(bench.db)
    assert [(one.depth, one.delayed, one.running) for one in figures] == [(1, 1, 0)]


async def test_retry_with_a_delay_of_its_own(bench: Bench) -> None:
    await bench.submit(settings=replace(QUICK, backoff_seconds=100, max_backoff_seconds=300))
    await transitions.retry(bench.db, lease=key_of(await bench.claim_one()), error="x", delay_seconds=0)
    assert (await bench.claim_one()).attempt == 2


async def test_a_claim_that_was_answered_to_nobody_is_answered_again(bench: Bench) -> None:
    await bench.submit()
    first = await leases.claim(bench.db, agent_id="x", worker_id="w1", limit=5, lease_seconds=None, claim_id="c1")
    assert await leases.held(bench.db, agent_id="x", worker_id="w1", claim_id="c1") == first
    assert await leases.held(bench.db, agent_id="x", worker_id="w2", claim_id="c1") == []
    await bench.append(first[0], status(TaskState.COMPLETED))
    assert await leases.held(bench.db, agent_id="x", worker_id="w1", claim_id="c1") == []


async def test_a_lane_with_a_limit_runs_no_more_whatever_ends_its_leases(bench: Bench) -> None:
    """The room of a lane is what its limit leaves of the leases held: no counter that could drift."""

    ids = [(await bench.submit()).task_id for _ in range(6)]
    async with bench.db.tenant("a") as connection:
        await connection.execute("UPDATE lanes SET max_running = 6 WHERE tenant_id = 'a' AND agent_id = 'x'")
    held = {lease.task_id: lease for lease in await bench.claim(limit=10)}
    for _ in range(9):
        await bench.submit()
    assert await bench.claim(limit=10) == []
    await bench.append(held[ids[0]], status(TaskState.COMPLETED))
    await bench.append(held[ids[1]], status(TaskState.INPUT_REQUIRED))
    await transitions.release(bench.db, lease=key_of(held[ids[2]]), delay_seconds=9)
    await lapse(bench, ids[3])
    await bench.reap()
    await bench.send(ids[4])
    await bench.append(held[ids[4]], status(TaskState.COMPLETED))
    assert len(await bench.claim(limit=10)) == 5
    assert await bench.claim(limit=10) == []


async def test_deadline_asks_then_fails(bench: Bench) -> None:
    task_id = (await bench.submit(settings=replace(QUICK, deadline_seconds=0.05, cancel_grace_seconds=0.05))).task_id
    lease = await bench.claim_one()
    assert await until(bench.reap) == ["deadline"]
    (beat,) = await leases.heartbeat(bench.db, [key_of(lease)], None)
    assert beat.signal == "deadline"
    assert await until(bench.reap) == ["deadline"]
    log = await bench.log(task_id)
    assert json.loads(log[-1].body)["statusUpdate"]["metadata"][RESUME_EXTENSION]["reason"] == "DEADLINE_EXCEEDED"
    assert isinstance(await bench.append(lease, status(TaskState.COMPLETED)), AlreadyTerminal)


async def test_queue_timeout(bench: Bench) -> None:
    settings = replace(QUICK, queue_timeout_seconds=0.05)
    waiting = (await bench.submit(settings=settings)).task_id
    assert await until(bench.reap) == ["queue_timeout"]
    assert await bench.state(waiting) is TaskState.FAILED
    await bench.submit(settings=settings)
    lease = await bench.claim_one()
    assert (await bench.append(lease, status(TaskState.COMPLETED))).state is TaskState.COMPLETED


async def test_a_queue_row_that_disagrees_with_its_task_stops_nothing_else(bench: Bench) -> None:
    bad, good = (await bench.submit()).task_id, (await bench.submit()).task_id
    async with bench.db.tenant("a") as connection:
        await connection.execute("UPDATE queue SET fence = 7 WHERE task_id = $1", bad)
    assert [lease.task_id for lease in await bench.claim(limit=5)] == [good]
    assert (await bench.load(bad)).head.run_at is None, "left to the repair (65_repair.sql)"


async def test_a_forgotten_pause_is_canceled(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    await bench.append(await bench.claim_one(), status(TaskState.INPUT_REQUIRED))
    assert await transitions.forget(bench.db, tenant="a", older_seconds=3600, limit=10) == []
    assert await transitions.forget(bench.db, tenant="a", older_seconds=0, limit=10) == [task_id]
    assert await bench.state(task_id) is TaskState.CANCELED
