"""Races, each by itself and all at once. Every pair of pools stands for two gateways on one database."""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from app.ledger import transitions
from app.ledger.inputs import LeaseKey
from app.ledger.rows import AlreadyTerminal, Applied, Claimed, Due, LeaseEnded, Sent, StaleLease
from app.protocol.states import TaskState
from tests.support.ledger import QUICK, Bench, chunk, key_of, open_bench, status


async def test_twenty_claimers_on_one_task_make_one_lease(database_url: str) -> None:
    """hatchet#1022."""
    async with open_bench(database_url, size=20) as bench:
        for _ in range(20):
            await bench.submit()
            claimed = await asyncio.gather(*(bench.claim(f"w{n}") for n in range(20)))
            (lease,) = [lease for one in claimed for lease in one]
            assert (await bench.append(lease, status(TaskState.COMPLETED))).state is TaskState.COMPLETED


async def test_racing_claimers_share_a_backlog_without_overlap(database_url: str) -> None:
    async with open_bench(database_url, size=16) as bench:
        for tenant in ("a", "b", "c"):
            one = Bench(bench.db, tenant=tenant)
            await asyncio.gather(*(one.submit() for _ in range(60)))
        taken = Counter[UUID]()

        async def drain(worker: str) -> None:
            idle = 0
            while idle < 5:  # SKIP LOCKED: empty once does not mean empty
                leases = await bench.claim(worker, limit=7)
                idle = 0 if leases else idle + 1
                taken.update(lease.task_id for lease in leases)

        await asyncio.gather(*(drain(f"w{n}") for n in range(12)))
        assert len(taken) == 180
        assert set(taken.values()) == {1}


@pytest.mark.parametrize("round_", range(3))
async def test_expiry_against_finish(database_url: str, round_: int) -> None:
    async with open_bench(database_url) as left, open_bench(database_url) as right:
        outcomes = Counter[str]()
        for n in range(60):
            task_id = (await left.submit()).task_id
            lease = await left.claim_one(seconds=0)
            due = Due("a", task_id, lease.fence, "expired")

            async def finish(held: Claimed, first: bool) -> object:
                await asyncio.sleep(0 if first else 0.001)
                return await right.append(held, status(TaskState.COMPLETED))

            ended, finished = await asyncio.gather(
                transitions.end_due(left.db, due), finish(lease, random.Random(n).random() < 0.5)
            )
            if isinstance(finished, Applied):
                assert ended is None
                assert await left.state(task_id) is TaskState.COMPLETED
                outcomes["finished"] += 1
            else:
                assert finished == StaleLease(TaskState.WORKING, 4)
                assert isinstance(ended, LeaseEnded)
                again = await left.claim_one()
                assert again.attempt == 2
                await left.append(again, status(TaskState.COMPLETED))
                outcomes["expired"] += 1
        assert len(outcomes) == 2, f"both sides must win sometimes: {outcomes}"


async def test_a_queued_message_against_completed(database_url: str) -> None:
    """Either the message finds the task terminal, or its turn runs: it is never accepted and lost."""
    async with open_bench(database_url) as left, open_bench(database_url) as right:
        outcomes = Counter[str]()
        for n in range(120):
            task_id = (await left.submit()).task_id
            lease = await left.claim_one()
            rng = random.Random(n)

            async def send(target: UUID, wait: float) -> object:
                await asyncio.sleep(wait)
                return await left.send(target, "queued")

            sent, ended = await asyncio.gather(
                send(task_id, rng.choice((0, 0.0005, 0.001, 0.002))), right.append(lease, status(TaskState.COMPLETED))
            )
            if isinstance(sent, Sent):
                assert (ended.turn_ended, ended.state) == (True, TaskState.WORKING)
                second = await left.claim_one()
                assert (second.task_id, second.turn) == (task_id, 2)
                await left.append(second, status(TaskState.COMPLETED))
                outcomes["queued"] += 1
            else:
                assert sent == AlreadyTerminal(TaskState.COMPLETED, 4)
                assert ended.state is TaskState.COMPLETED
                outcomes["too late"] += 1
        assert len(outcomes) == 2, f"both sides must win sometimes: {outcomes}"


async def test_eight_appenders_on_one_lease_leave_no_gap(database_url: str) -> None:
    """Scenario 2: dense seqs under concurrent writers, some of which are refused."""
    async with open_bench(database_url) as bench:
        task_id = (await bench.submit()).task_id
        lease = await bench.claim_one()
        wrong = LeaseKey("a", task_id, lease.fence + 1)

        async def write(n: int) -> list[int]:
            seqs: list[int] = []
            for i in range(25):
                if (n + i) % 5 == 0:
                    assert isinstance(await bench.append(wrong, chunk("x", artifact=f"{n}")), StaleLease)
                seqs += (await bench.append(lease, chunk(f"{n}.{i}", artifact=f"{n}"), status(TaskState.WORKING))).seqs
            return seqs

        written = [seq for seqs in await asyncio.gather(*map(write, range(8))) for seq in seqs]
        assert sorted(written) == list(range(4, 404))
        assert len(await bench.log(task_id)) == 403


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_ten_thousand_mixed_operations_without_a_deadlock(database_url: str) -> None:
    """All operations on few tasks from two pools. A deadlock would be retried silently: PostgreSQL counts them."""
    async with open_bench(database_url, size=16) as left, open_bench(database_url, size=16) as right:
        benches = [Bench(pool.db, tenant=tenant) for pool in (left, right) for tenant in ("a", "b")]
        known: list[tuple[Bench, UUID]] = []
        held: list[Claimed] = []
        done = Counter[str]()

        async def act(rng: random.Random) -> None:
            bench = rng.choice(benches)
            owner, task_id = rng.choice(known) if known else (bench, (await bench.submit()).task_id)
            lease = rng.choice(held) if held else None
            choice = rng.choices(
                ["submit", "send", "claim", "append", "finish", "pause", "retry", "release", "cancel", "reap"],
                [4, 8, 10, 12, 5, 4, 3, 3, 2, 3],
            )[0]
            done[choice] += 1
            if choice == "submit":
                known.append((bench, (await bench.submit(settings=replace(QUICK, cancel_grace_seconds=0.01))).task_id))
                del known[:-30]
            elif choice == "send":
                await owner.send(task_id)
            elif choice == "claim":
                held.extend(await bench.claim(limit=3, seconds=rng.choice((0.02, 5))))
                del held[:-30]
            elif choice == "cancel":
                await owner.cancel(task_id)
            elif choice == "reap":
                await bench.reap()
            elif lease is not None:
                await use(bench, lease, choice)

        async def use(bench: Bench, lease: Claimed, choice: str) -> None:
            if choice == "append":
                await bench.append(lease, chunk("x"), chunk("y", append=True), status(TaskState.WORKING))
            elif choice == "finish":
                await bench.append(lease, chunk("x"), status(TaskState.COMPLETED))
            elif choice == "pause":
                await bench.append(lease, status(TaskState.INPUT_REQUIRED))
            elif choice == "retry":
                await transitions.retry(bench.db, lease=key_of(lease), error="x", delay_seconds=0)
            else:
                await transitions.release(bench.db, lease=key_of(lease), delay_seconds=None)

        async def actor(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(420):
                await act(rng)

        await asyncio.gather(*map(actor, range(24)))
        assert sum(done.values()) >= 10_000
        stats = await left.db.call("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert stats["deadlocks"] == 0
        await check_invariants(left, benches[:2])


async def check_invariants(bench: Bench, tenants: list[Bench]) -> None:
    """Live work and only live work is in the queue; logs are dense; one terminal state."""
    async with bench.db.tenant("a", "b") as connection:
        orphans = await connection.fetch("""
            SELECT t.task_id, t.state, q.task_id AS queued, t.fence, q.fence AS queue_fence FROM tasks t
              FULL JOIN queue q ON q.tenant_id = t.tenant_id AND q.task_id = t.task_id
             WHERE (t.state IN (1, 2)) IS DISTINCT FROM (q.task_id IS NOT NULL) OR q.fence <> t.fence""")
        ids = await connection.fetch("SELECT tenant_id, task_id, last_seq, terminal_seq FROM tasks")
    assert orphans == []
    by_tenant = {one.tenant: one for one in tenants}
    for row in ids:
        await by_tenant[row["tenant_id"]].log(row["task_id"])
        assert row["terminal_seq"] in (None, row["last_seq"])
