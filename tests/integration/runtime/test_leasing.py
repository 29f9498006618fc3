"""The claim loops: who is woken, who is served, and what becomes of leases that nobody receives."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import pytest_asyncio

from app import metrics
from app.auth.caller import Caller
from app.auth.handles import Handles
from app.errors import Unavailable
from app.execution.claim_loop import RETRY_SECONDS, ClaimLoop, Want
from app.execution.lease_view import seal_lease
from app.execution.leasing import Granted, Leasing
from app.execution.session import Sessions
from app.ledger import agents, tasks
from app.ledger.directory import AgentDirectory
from app.ledger.pool import Database
from app.ledger.wakeups import Wakeups, queue_key
from app.protocol.states import TaskState
from tests.support.ledger import Bench
from tests.support.tcp_proxy import proxied

HANDLES = Handles([b"x" * 32])
NO_POLL = 3600.0
"""A poll so rare that a test which passes has been woken by a hint."""


@asynccontextmanager
async def replica(db: Database, wakeups: Wakeups, *, poll_seconds: float = NO_POLL) -> AsyncIterator[Leasing]:
    directory = AgentDirectory(db, wakeups)
    leasing = Leasing(db, wakeups, directory, HANDLES, poll_seconds=poll_seconds)
    try:
        yield leasing
    finally:
        await leasing.stop()
        directory.close()


@pytest_asyncio.fixture
async def leasing(bench: Bench, wakeups: Wakeups) -> AsyncIterator[Leasing]:
    async with replica(bench.db, wakeups) as one:
        yield one


def ask(
    leasing: Leasing, bench: Bench, worker: str = "w", *, limit: int = 1, wait: float = 20
) -> "asyncio.Task[Granted]":
    want = Want(worker, limit)
    return asyncio.create_task(leasing.lease(bench.agent, want, wait_seconds=wait, view="light"))


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> dict[ClaimLoop, int]:
    """How often each claim loop of the test has come back empty since its last hint."""
    found: dict[ClaimLoop, int] = {}
    pause = ClaimLoop._pause

    def told(loop: ClaimLoop, looks: int) -> float:
        found[loop] = looks
        return pause(loop, looks)

    monkeypatch.setattr(ClaimLoop, "_pause", told)
    return found


async def settled(looks: dict[ClaimLoop, int], *polls: "asyncio.Task[Granted]") -> None:
    """Until all ``polls`` have been looked for in vain and their loops wait for hints only."""
    async with asyncio.timeout(10):
        while sum(len(loop._waiting) for loop in looks) < len(polls) or any(
            loop._signal._event.is_set() or count < len(RETRY_SECONDS) for loop, count in looks.items() if loop._waiting
        ):
            await asyncio.sleep(0.01)


async def test_a_hint_serves_the_waiting_poller(
    bench: Bench, wakeups: Wakeups, leasing: Leasing, looks: dict[ClaimLoop, int]
) -> None:
    poll = ask(leasing, bench)
    await settled(looks, poll)
    sent = await bench.submit()
    wakeups.bump(queue_key(bench.agent))
    granted = await asyncio.wait_for(poll, 5)
    assert [lease.task_id for lease in granted.claimed] == [sent.task_id]
    assert granted.shown[0]["taskId"] == str(sent.task_id)


async def test_without_a_hint_the_poll_finds_it(bench: Bench, wakeups: Wakeups, looks: dict[ClaimLoop, int]) -> None:
    async with replica(bench.db, wakeups, poll_seconds=0.2) as leasing:
        poll = ask(leasing, bench)
        await settled(looks, poll)
        await bench.submit()
        assert len((await asyncio.wait_for(poll, 5)).claimed) == 1


async def test_a_lane_that_was_locked_at_the_hint_is_tried_again_soon(
    bench: Bench, wakeups: Wakeups, leasing: Leasing, looks: dict[ClaimLoop, int]
) -> None:
    poll = ask(leasing, bench)
    await settled(looks, poll)
    await bench.submit()
    async with bench.db.tenant(bench.tenant) as connection:
        await connection.fetch("SELECT 1 FROM lanes WHERE tenant_id = $1 FOR NO KEY UPDATE", bench.tenant)
        wakeups.bump(queue_key(bench.agent))
        await asyncio.sleep(0.05)
        assert not poll.done()
    assert len((await asyncio.wait_for(poll, 2)).claimed) == 1


async def test_pollers_are_served_in_their_order(
    bench: Bench, wakeups: Wakeups, leasing: Leasing, looks: dict[ClaimLoop, int]
) -> None:
    first, second = ask(leasing, bench, "w1"), ask(leasing, bench, "w2")
    await settled(looks, first, second)
    await bench.submit()
    wakeups.bump(queue_key(bench.agent))
    assert len((await asyncio.wait_for(first, 5)).claimed) == 1
    assert not second.done()
    await bench.submit()
    wakeups.bump(queue_key(bench.agent))
    assert len((await asyncio.wait_for(second, 5)).claimed) == 1


async def test_what_one_replica_leaves_the_other_takes(
    bench: Bench, wakeups: Wakeups, database_url: str, looks: dict[ClaimLoop, int]
) -> None:
    """One hint, two tasks, one poller on each of two replicas: the one that loses the lane hears of the rest."""
    far = Wakeups(database_url)
    await far.start()
    assert await far.wait_connected(10)
    async with replica(bench.db, wakeups) as near_leasing, replica(bench.db, far) as far_leasing:
        for _ in range(5):
            polls = [ask(near_leasing, bench, "near"), ask(far_leasing, bench, "far")]
            await settled(looks, *polls)
            await bench.submit()
            await bench.submit()
            wakeups.bump(queue_key(bench.agent))
            granted = await asyncio.wait_for(asyncio.gather(*polls), 5)
            assert [len(each.claimed) for each in granted] == [1, 1]
    await far.stop()


async def test_a_poller_that_goes_before_its_claim_leaves_nothing_behind(
    bench: Bench, wakeups: Wakeups, leasing: Leasing, looks: dict[ClaimLoop, int]
) -> None:
    gone, stays = ask(leasing, bench, "gone"), ask(leasing, bench, "stays")
    await settled(looks, gone, stays)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    sent = await bench.submit()
    wakeups.bump(queue_key(bench.agent))
    (lease,) = (await asyncio.wait_for(stays, 5)).claimed
    assert (lease.task_id, lease.attempt) == (sent.task_id, 1)


async def test_a_poller_that_goes_during_its_claim_gives_the_lease_back(bench: Bench, leasing: Leasing) -> None:
    """The claim is held up by the task's lock, so that its poller is surely gone when it comes back."""
    sent = await bench.submit()
    before = metrics.LEASES_GIVEN_BACK._value.get()
    async with bench.db.tenant(bench.tenant) as connection:
        await connection.fetch(
            "SELECT 1 FROM tasks WHERE tenant_id = $1 AND task_id = $2 FOR NO KEY UPDATE", bench.tenant, sent.task_id
        )
        gone = ask(leasing, bench, "gone")
        await asyncio.sleep(0.3)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    (lease,) = (await asyncio.wait_for(ask(leasing, bench, "next"), 10)).claimed
    assert (lease.task_id, lease.attempt) == (sent.task_id, 1)
    assert metrics.LEASES_GIVEN_BACK._value.get() == before + 1
    assert (await bench.kinds(sent.task_id)).count("turn.started") == 2


async def test_the_end_of_a_lease_lets_the_next_begin_where_they_are_limited(
    bench: Bench, wakeups: Wakeups, database_url: str, looks: dict[ClaimLoop, int]
) -> None:
    """Two replicas, which hear of an end by its hint; where nothing is limited there is none."""
    config = {"maxConcurrency": 1}
    await agents.put(bench.db, tenant="a", agent_id="x", config=config, shared_with=(), holds=lambda _: True)
    far = Wakeups(database_url)
    await far.start()
    assert await far.wait_connected(10)
    directory = AgentDirectory(bench.db, wakeups)
    sessions = Sessions(bench.db, wakeups, directory, HANDLES, poll_seconds=NO_POLL)
    caller = Caller("a", "w", frozenset(), frozenset({"x"}), math.inf)
    async with replica(bench.db, wakeups) as near_leasing, replica(bench.db, far) as far_leasing:
        for _ in range(3):
            await bench.submit()
        (first,) = (await ask(near_leasing, bench, limit=5)).claimed
        polls = [ask(near_leasing, bench, "near", limit=5), ask(far_leasing, bench, "far", limit=5)]
        while polls:
            await settled(looks, *polls)
            assert not any(poll.done() for poll in polls)
            held = await sessions.open(caller, seal_lease(HANDLES, first, "w"))
            await sessions.append(held, [{"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}}])
            done, left = await asyncio.wait(polls, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            ((first,),) = [poll.result().claimed for poll in done]
            polls = list(left)
    directory.close()
    await far.stop()


async def test_draining_answers_all_pollers_and_grants_nothing_more(
    bench: Bench, leasing: Leasing, looks: dict[ClaimLoop, int]
) -> None:
    polls = [ask(leasing, bench) for _ in range(3)]
    await settled(looks, *polls)
    start = time.monotonic()
    leasing.drain()
    assert [each.claimed for each in await asyncio.gather(*polls)] == [[], [], []]
    await bench.submit()
    assert (await ask(leasing, bench)).claimed == []
    assert time.monotonic() - start < 1
    assert len(await bench.claim()) == 1, "the task is there for others"


async def test_a_database_that_is_away_is_told_to_all_pollers(
    bench: Bench, database_url: str, wakeups: Wakeups, looks: dict[ClaimLoop, int]
) -> None:
    async with proxied(database_url) as (proxy, dsn):
        db = await Database.connect(dsn, size=2)
        async with replica(db, wakeups) as leasing:
            polls = [ask(leasing, bench) for _ in range(3)]
            await settled(looks, *polls)
            proxy.refuse()
            wakeups.bump(queue_key(bench.agent))
            for poll in polls:
                with pytest.raises(Unavailable):
                    await asyncio.wait_for(poll, 5)
            proxy.accept()
            await bench.submit()
            assert len((await asyncio.wait_for(ask(leasing, bench), 10)).claimed) == 1
        await db.close()


async def test_a_task_that_cannot_be_read_stops_no_other(
    bench: Bench, wakeups: Wakeups, leasing: Leasing, database_url: str
) -> None:
    """Its attempts are used up, so that it does not come back for ever."""
    unreadable, other = await bench.submit(), await bench.submit()
    admin = await asyncpg.connect(database_url)
    await admin.execute("UPDATE events SET body = '{' WHERE task_id = $1", unreadable.task_id)
    await admin.close()
    granted = await asyncio.wait_for(ask(leasing, bench, limit=2), 5)
    assert [lease.task_id for lease in granted.claimed] == [other.task_id]
    assert [shown["taskId"] for shown in granted.shown] == [str(other.task_id)]
    async with asyncio.timeout(10):
        while (head := await tasks.head(bench.db, "a", unreadable.task_id)) and head.state is not TaskState.FAILED:
            assert (await ask(leasing, bench, wait=0.1)).shown == []


async def test_stopping_waits_for_what_is_given_back(bench: Bench, wakeups: Wakeups) -> None:
    directory = AgentDirectory(bench.db, wakeups)
    leasing = Leasing(bench.db, wakeups, directory, HANDLES, poll_seconds=NO_POLL)
    sent = await bench.submit()
    granted = await ask(leasing, bench)
    leasing.give_back(granted.claimed)
    await leasing.stop()
    directory.close()
    (lease,) = await bench.claim()
    assert (lease.task_id, lease.attempt) == (sent.task_id, 1)
