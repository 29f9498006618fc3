"""Shares and limits: of lanes as their agent's owner has set them, and of agents (ledger.md, Claim, Fair lanes)."""

import asyncio
from collections import Counter
from dataclasses import replace

import asyncpg
import pytest
import pytest_asyncio

from app.ledger import agents, lanes, leases
from app.ledger.inputs import ClaimLimits
from app.ledger.rows import Claimed, LaneSet, LanesFull
from app.protocol.states import TaskState
from tests.support.ledger import QUICK, Bench, open_bench, status


@pytest_asyncio.fixture(autouse=True)
async def agent(bench: Bench) -> None:
    """Tenant ``owner``'s agent x, which the tenants a and b send to."""
    made = await agents.put(bench.db, tenant="owner", agent_id="x", config={}, shared_with=("*",), holds=lambda _: True)
    assert isinstance(made, agents.Agent)


async def share(
    bench: Bench, tenant: str = "a", key: str = "", *, weight: float = 1, limit: int | None = None, owner: str = "owner"
) -> LaneSet | LanesFull | None:
    return await lanes.set_share(
        bench.db, owner=owner, agent_id="x", tenant=tenant, fair_key=key, weight=weight, max_running=limit
    )


async def submit(bench: Bench, count: int, key: str = "") -> None:
    for _ in range(count):
        await bench.submit(settings=replace(QUICK, fair_key=key))


async def claim_within(bench: Bench, limits: ClaimLimits, worker: str = "w1", *, limit: int = 10) -> list[Claimed]:
    return await leases.claim(
        bench.db, agent_id="x", worker_id=worker, limit=limit, lease_seconds=None, claim_id=None, limits=limits
    )


async def claim_each(bench: Bench, count: int) -> list[Claimed]:
    return [await bench.claim_one() for _ in range(count)]


@pytest.mark.parametrize("keys", [("",), ("k1", "k2", "k3")])
async def test_a_tenants_weight_is_its_share_whatever_fair_keys_it_uses(bench: Bench, keys: tuple[str, ...]) -> None:
    assert await share(bench, "b", weight=3) == LaneSet()
    other = Bench(bench.db, tenant="b")
    await submit(bench, 40)
    for key in keys:
        await submit(other, 40, key)
    taken = Counter(lease.tenant for lease in await claim_each(bench, 40))
    assert 27 <= taken["b"] <= 33, taken


async def test_a_fair_keys_weight_is_its_share_inside_its_tenant(bench: Bench) -> None:
    await share(bench, "a", "gold", weight=4)
    for key in ("gold", "plain"):
        await submit(bench, 50, key)
    other = Bench(bench.db, tenant="b")
    await submit(other, 50)
    taken = await claim_each(bench, 60)
    gold = {one.task_id for one in taken} & set(bench.made[:50])
    tenants = Counter(lease.tenant for lease in taken)
    assert 26 <= tenants["b"] <= 34, tenants
    assert 20 <= len(gold) <= 28, (len(gold), tenants)


async def test_a_tenants_limit_holds_for_all_its_lanes_together(bench: Bench) -> None:
    await share(bench, "a", limit=3)
    await submit(bench, 2)
    for key in ("k1", "k2"):
        await submit(bench, 5, key)
    held = await bench.claim(limit=10)
    assert len(held) == 3
    assert await bench.claim(limit=10) == []
    await bench.append(held[0], status(TaskState.COMPLETED))
    assert len(await bench.claim(limit=10)) == 1
    await share(bench, "a", limit=None)
    assert len(await bench.claim(limit=10)) == 8


async def test_a_fair_keys_limit_leaves_the_other_keys_alone(bench: Bench) -> None:
    await share(bench, "a", "slow", limit=0)
    await submit(bench, 3, "slow")
    await submit(bench, 3, "fast")
    assert {lease.task_id for lease in await bench.claim(limit=10)} == set(bench.made[3:])
    await share(bench, "a", "slow", limit=2)
    assert len(await bench.claim(limit=10)) == 2


async def test_claimers_of_different_lanes_never_exceed_their_tenants_limit(database_url: str) -> None:
    async with open_bench(database_url, size=6) as left, open_bench(database_url, size=6) as right:
        await share(left, "a", limit=4)
        for number in range(6):
            await submit(left, 10, f"k{number}")
        seen, done = await race(left, right, total=60)
        assert (done, 1 < seen <= 4) == (60, True), seen


async def race(left: Bench, right: Bench, *, total: int, limits: ClaimLimits = leases.NO_LIMITS) -> tuple[int, int]:
    """Twelve claimers over two pools until ``total`` tasks are done: the most held at once, and how many ended."""
    most, done = 0, 0

    async def work(bench: Bench, worker: str) -> None:
        nonlocal most, done
        while done < total:
            held = await claim_within(bench, limits, worker, limit=2)
            if held:
                (figures,) = await leases.queue_figures(bench.db)
                most = max(most, figures.running)
            for lease in held:
                await bench.append(lease, status(TaskState.COMPLETED))
                done += 1

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(bench, f"w{n}") for n in range(6) for bench in (left, right)))
    return most, done


async def test_a_limited_lane_does_not_let_the_others_crowd_each_other_out(bench: Bench) -> None:
    """A lane without room is not the least served one: who comes back starts level with those that are served."""
    await share(bench, "a", limit=1)
    busy, late = Bench(bench.db, tenant="b"), Bench(bench.db, tenant="c")
    for one in (bench, busy, late):
        await submit(one, 1)
    await claim_each(bench, 3)
    await bench.claim()
    await submit(bench, 5)
    await submit(busy, 40)
    await claim_each(bench, 20)
    await submit(late, 20)
    taken = Counter(lease.tenant for lease in await claim_each(bench, 10))
    assert taken["b"] >= 4, taken


async def test_keys_beyond_the_lanes_never_share_one_that_was_set(bench: Bench) -> None:
    await share(bench, "a", "k0", limit=0)
    await share(bench, "a", "k1", weight=9)
    for number in range(100):
        await submit(bench, 1, f"k{number}")
    async with bench.db.tenant("a") as connection:
        rows = await connection.fetch("SELECT fair_key, count(*) AS tasks FROM tasks GROUP BY fair_key")
    tasks = {row["fair_key"]: row["tasks"] for row in rows}
    assert (tasks["k0"], tasks["k1"], len(tasks)) == (1, 1, 65)


async def test_only_the_owner_sets_and_sees_to_it(bench: Bench) -> None:
    for stranger in ("a", "b"):
        assert await share(bench, "a", weight=5, owner=stranger) is None
    assert await agents.delete(bench.db, tenant="owner", agent_id="x", force=False) == agents.Deleted()
    assert await share(bench, "a", weight=5) is None
    async with bench.db.tenant("a", "b", "owner") as connection:
        assert await connection.fetch("SELECT 1 FROM lanes") == []
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with bench.db.tenant("b") as connection:
            await connection.execute("INSERT INTO lanes (tenant_id, agent_id, fair_key) VALUES ('a', 'x', '')")


async def test_lanes_that_were_set_and_never_used_are_bounded(bench: Bench) -> None:
    await submit(bench, 1)
    await bench.claim_one()
    admin = await asyncpg.connect(bench.db.dsn)
    await admin.execute(
        "INSERT INTO lanes (tenant_id, agent_id, fair_key) SELECT 't' || n, 'x', '' FROM generate_series(1, 999) n"
    )
    await admin.close()
    assert await share(bench, "a", "k1") == LaneSet()
    assert await share(bench, "a", "k2") == LanesFull()
    assert await share(bench, "t7", weight=2) == LaneSet(), "one that exists may still be changed"


# The agent's own limits ----------------------------------------------------------------------------------------------


async def test_an_agents_limits_count_what_is_held_in_all_and_of_each_tenant(bench: Bench) -> None:
    other = Bench(bench.db, tenant="b")
    for key in ("", "k1", "k2"):
        await submit(bench, 3, key)
    await submit(other, 3)
    limits = ClaimLimits(in_all=5, per_tenant=3)
    held = await claim_within(bench, limits)
    assert Counter(lease.tenant for lease in held) in ({"a": 3, "b": 2}, {"a": 2, "b": 3})
    assert await claim_within(bench, limits) == []
    (one, *_) = [lease for lease in held if lease.tenant == "a"]
    await bench.append(one, status(TaskState.INPUT_REQUIRED))
    assert len(await claim_within(bench, limits)) == 1
    assert await claim_within(bench, ClaimLimits(in_all=2)) == [], "lowered below what is held"
    assert len(await claim_within(bench, ClaimLimits(per_tenant=4))) == 2, "four of a's, and all three of b's"
    elsewhere = Bench(bench.db, agent="y")
    await elsewhere.submit()
    assert len(await elsewhere.claim()) == 1, "another agent's leases are no matter"
    assert Counter(lease.tenant for lease in await bench.claim(limit=20)) == {"a": 4}, "without limits all is left"


async def test_a_lanes_limit_and_the_agents_hold_both(bench: Bench) -> None:
    await share(bench, "a", limit=2)
    other = Bench(bench.db, tenant="b")
    for one in (bench, other):
        await submit(one, 5)
    taken = Counter(lease.tenant for lease in await claim_within(bench, ClaimLimits(per_tenant=3)))
    assert taken == {"a": 2, "b": 3}


@pytest.mark.parametrize(("limits", "most"), [(ClaimLimits(in_all=5), 5), (ClaimLimits(per_tenant=2), 4)])
async def test_twelve_claimers_over_two_pools_never_exceed_the_limit(
    database_url: str, limits: ClaimLimits, most: int
) -> None:
    async with open_bench(database_url, size=6) as left, open_bench(database_url, size=6) as right:
        for number in range(6):
            await submit(left, 5, f"k{number}")
            await submit(Bench(left.db, tenant="b"), 5, f"k{number}")
        seen, done = await race(left, right, total=60, limits=limits)
        assert (done, 1 < seen <= most) == (60, True), seen
