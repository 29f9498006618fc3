"""The outbox under load: appends, configs made, replaced and deleted, claims, outcomes and redeliveries all at once.

Every pair of pools stands for two replicas on one database.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from app.ledger import deliveries, push_configs
from app.ledger.deliveries import Delivery
from app.ledger.inputs import LeaseKey
from app.ledger.push_configs import PushConfigSet
from app.ledger.rows import AlreadyTerminal, Applied, StaleLease
from app.protocol.events import A2A_HIDDEN
from app.protocol.states import TaskState
from tests.integration.ledger.outbox import claim, config, configure, drain, due, rows, seqs
from tests.support.ledger import Bench, chunk, key_of, open_bench, status

KEPT, PASSING = ("k0", "k1"), ("p0", "p1")
"""Configs that stay once they are made, and configs that come and go."""


@dataclass
class Storm:
    """What the actors share: leased tasks of two tenants, and deliveries that are being sent."""

    benches: list[Bench]
    leases: list[LeaseKey] = field(default_factory=list[LeaseKey])
    held: list[Delivery] = field(default_factory=list[Delivery])
    done: Counter[str] = field(default_factory=Counter[str])

    def bench_of(self, tenant: str, rng: random.Random) -> Bench:
        return rng.choice([bench for bench in self.benches if bench.tenant == tenant])

    async def act(self, rng: random.Random) -> None:
        lease = rng.choice(self.leases)
        bench = self.bench_of(lease.tenant, rng)
        what = rng.choices(
            ["append", "keep", "replace", "delete", "claim", "deliver", "fail", "kill", "redeliver"],
            [10, 1, 4, 3, 6, 12, 3, 2, 2],
        )[0]
        self.done[what] += 1
        if what == "append":
            assert isinstance(await bench.append(lease, chunk("x"), status(TaskState.WORKING)), Applied)
        elif what == "keep":
            await configure(bench, lease.task_id, config(rng.choice(KEPT), f"https://{rng.randrange(3)}.example/x"))
        elif what == "replace":
            await configure(bench, lease.task_id, config(rng.choice(PASSING), f"https://{rng.randrange(3)}.example/x"))
        elif what == "delete":
            await push_configs.delete(bench.db, bench.tenant, lease.task_id, rng.choice(PASSING))
        elif what == "claim":
            self.held += await claim(bench, limit=5, per_receiver=3, hold=rng.choice((0, 0.05, 30)))
        elif self.held:
            await self.end(bench, self.held.pop(rng.randrange(len(self.held))), what)

    async def end(self, bench: Bench, one: Delivery, what: str) -> None:
        if what == "deliver":
            await deliveries.delivered(bench.db, one, 200)
        elif what == "redeliver":
            await deliveries.redeliver(bench.db, one.tenant, one.key)
        else:
            await deliveries.failed(
                bench.db, one, status=500, error="x", retry_seconds=0 if what == "fail" else None
            )  # fmt: skip


async def began(bench: Bench, count: int) -> list[LeaseKey]:
    for _ in range(count):
        await bench.submit()
    return [key_of(lease) for lease in await bench.claim(limit=count, seconds=600)]


async def deadlocks(bench: Bench) -> int:
    row = await bench.db.call("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return row["deadlocks"]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_all_at_once_without_a_deadlock_and_nothing_lost(database_url: str) -> None:
    async with open_bench(database_url, size=12) as left, open_bench(database_url, size=12) as right:
        benches = [Bench(pool.db, tenant=tenant) for pool in (left, right) for tenant in ("a", "b")]
        storm = Storm(benches)
        for bench in benches[:2]:
            storm.leases += await began(bench, 3)

        async def actor(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(150):
                await storm.act(rng)

        await asyncio.gather(*map(actor, range(20)))
        assert min(storm.done.values()) > 50, storm.done
        assert await deadlocks(left) == 0
        for lease in storm.leases:
            bench = storm.bench_of(lease.tenant, random.Random(0))
            assert isinstance(await bench.append(lease, status(TaskState.COMPLETED)), Applied)
            await check_lines(bench, lease.task_id)
        await let_go(left)
        await drain(left)
        for lease in storm.leases:
            bench = storm.bench_of(lease.tenant, random.Random(0))
            assert await rows(bench, lease.task_id, "pending") == []
            await check_kept(bench, lease.task_id)


async def let_go(bench: Bench) -> None:
    """All holds are over: nobody sends any more."""
    async with bench.db.tenant("a", "b") as connection:
        await connection.execute("UPDATE deliveries SET due_at = clock_timestamp() WHERE due_at IS NOT NULL")


async def check_lines(bench: Bench, task_id: UUID) -> None:
    """Of each line exactly the head is due; those before it ended in the order of their seqs."""
    async with bench.db.tenant(bench.tenant) as connection:
        found = await connection.fetch(
            "SELECT config_id, state, due_at IS NOT NULL AS due, redelivery, ended_at FROM deliveries"
            " WHERE tenant_id = $1 AND task_id = $2 ORDER BY config_id, seq",
            bench.tenant,
            task_id,
        )
    for config_id in {row["config_id"] for row in found}:
        line = [row for row in found if row["config_id"] == config_id and not row["redelivery"]]
        pending = [row["due"] for row in line if row["state"] == "pending"]
        assert pending == [True, *[False] * len(pending)][: len(pending)]
        ended = [row["ended_at"] for row in line if row["state"] != "pending"]
        assert ended == sorted(ended)
    assert all(row["due"] == (row["state"] == "pending") for row in found if row["redelivery"])


async def check_kept(bench: Bench, task_id: UUID) -> None:
    """A config that was never deleted has one delivery of each event that clients see, from its creation on."""
    log = await bench.log(task_id)
    for config_id in KEPT:
        one = await push_configs.get(bench.db, bench.tenant, task_id, config_id)
        if one is not None:
            shown = [event.seq for event in log if event.seq >= one.from_seq and event.kind not in A2A_HIDDEN]
            assert await seqs(bench, task_id, config_id) == shown


@pytest.mark.timeout(240)
async def test_an_event_against_the_end_of_its_lines_last_delivery(database_url: str) -> None:
    """Either the event sees the line empty and is due, or the end of the last one finds it: it never stays behind."""
    async with open_bench(database_url) as left, open_bench(database_url) as right:
        task_id = (await left.submit()).task_id
        lease = await left.claim_one(seconds=600)
        await configure(left, task_id, config())
        await left.append(lease, chunk("0"))
        for n in range(120):
            (one,) = await claim(left)
            rng = random.Random(n)

            async def ended(one: Delivery, wait: float) -> bool:
                await asyncio.sleep(wait)
                return await deliveries.delivered(right.db, one, 200)

            _, ours = await asyncio.gather(left.append(lease, chunk("x")), ended(one, rng.choice((0, 0.0005, 0.001))))
            assert ours
            assert [seq for seq, _ in await due(left, task_id)] == [one.seq + 1]


async def test_a_config_against_the_event_that_it_just_missed_or_hears_of(database_url: str) -> None:
    """from_seq and the outbox agree, whichever came first; and of racing creates of one id one config comes."""
    async with open_bench(database_url) as left, open_bench(database_url) as right:
        for _ in range(40):
            task_id = (await left.submit()).task_id
            lease = await left.claim_one()
            outcomes = await asyncio.gather(
                configure(right, task_id, config("c", "https://one.example/x")),
                left.append(lease, chunk("x"), chunk("y"), status(TaskState.COMPLETED)),
                configure(left, task_id, config("c", "https://two.example/x")),
            )
            assert [type(outcome) for outcome in outcomes] == [PushConfigSet, Applied, PushConfigSet]
            (one,) = await push_configs.list_configs(left.db, "a", task_id)
            assert one.from_seq in (4, 7)
            assert await seqs(left, task_id) == list(range(one.from_seq, 7))
            to_be_sent = [row for row in await rows(left, task_id) if row.due_at is not None]
            assert {row.destination for row in to_be_sent} <= {one.destination}


async def test_racing_senders_never_hold_one_delivery_together(database_url: str) -> None:
    async with open_bench(database_url, size=12) as left, open_bench(database_url, size=12) as right:
        for number in range(30):
            task_id = (await left.submit()).task_id
            await configure(left, task_id, config("c", f"https://{number % 4}.example/x"))
        for lease in await left.claim(limit=30):
            await left.append(lease, status(TaskState.COMPLETED))
        taken: Counter[str] = Counter()

        async def sender(bench: Bench) -> None:
            while await rows(bench, state="pending"):
                for one in await claim(bench, limit=7, per_receiver=4):
                    taken[one.id] += 1
                    assert await deliveries.delivered(bench.db, one, 200)

        await asyncio.gather(*(sender(bench) for bench in (left, right) for _ in range(4)))
        assert len(taken) == 60
        assert set(taken.values()) == {1}


async def test_an_append_against_the_end_of_its_task_makes_no_delivery_of_a_refused_event(database_url: str) -> None:
    async with open_bench(database_url) as left, open_bench(database_url) as right:
        for _ in range(20):
            task_id = (await left.submit()).task_id
            await configure(left, task_id, config())
            lease = await left.claim_one()
            outcomes = await asyncio.gather(
                left.append(lease, status(TaskState.COMPLETED)),
                right.append(lease, chunk("x"), status(TaskState.FAILED)),
            )
            assert {type(outcome) for outcome in outcomes} in ({Applied, AlreadyTerminal}, {Applied, StaleLease})
            log = await left.log(task_id)
            assert await seqs(left, task_id) == [event.seq for event in log if event.seq > 2]
