"""The background loops, each by its ``run_once``, and the shape they share."""

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from app import metrics
from app.errors import Unavailable
from app.ledger import agents, transitions
from app.ledger.directory import AgentDirectory
from app.ledger.pool import Database
from app.ledger.rows import QueueFigures
from app.ledger.wakeups import AGENTS_KEY, Wakeups, lease_key, task_key
from app.loops import Loop, LoopConfig
from app.maintenance.forgotten import Forgotten
from app.maintenance.gauges import MAX_AGENTS, OTHER_AGENTS, QueueGauges, bounded
from app.maintenance.orphans import Orphans
from app.maintenance.partitions import Partitions
from app.maintenance.pulse import Pulse
from app.maintenance.readiness import Readiness
from app.maintenance.reaper import Reaper
from app.protocol.states import TaskState
from tests.support.ledger import Bench, status
from tests.support.tcp_proxy import proxied


async def fits() -> str | None:
    return None


@pytest_asyncio.fixture
async def pulse(bench: Bench, wakeups: Wakeups) -> AsyncIterator[Pulse]:
    yield Pulse(bench.db, wakeups, fits)


# The reaper ----------------------------------------------------------------------------------------------------------


async def test_the_reaper_ends_what_is_due_and_tells_who_waits(bench: Bench, wakeups: Wakeups, pulse: Pulse) -> None:
    sent = await bench.submit()
    await bench.claim_one(seconds=0.05)
    expiries = metrics.LEASE_EXPIRIES._value.get()
    reaper = Reaper(bench.db, wakeups, pulse)
    keys = task_key(bench.tenant, sent.task_id), lease_key(bench.tenant, sent.task_id)
    with wakeups.watch(keys[0]) as readers, wakeups.watch(keys[1]) as heartbeat:
        await asyncio.sleep(0.1)
        assert await reaper.run_once() is False
        assert readers.take()
        assert heartbeat.take()
    assert metrics.LEASE_EXPIRIES._value.get() == expiries + 1
    assert (await bench.load(sent.task_id)).head.worker_id is None
    assert (await bench.claim_one()).attempt == 2


async def test_two_reapers_end_a_thing_once(bench: Bench, wakeups: Wakeups, pulse: Pulse) -> None:
    tasks = [await bench.submit() for _ in range(20)]
    await bench.claim(limit=20, seconds=0.05)
    await asyncio.sleep(0.1)
    reapers = [Reaper(bench.db, wakeups, pulse) for _ in range(3)]
    await asyncio.gather(*(reaper.run_once() for reaper in reapers))
    for task in tasks:
        assert (await bench.kinds(task.task_id)) == ["task.submitted", "turn.started", "status", "status"]


async def test_a_full_page_asks_for_the_next_run_at_once(
    bench: Bench, wakeups: Wakeups, pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.maintenance.reaper.PAGE", 2)
    for _ in range(3):
        await bench.submit()
    await bench.claim(limit=3, seconds=0.05)
    await asyncio.sleep(0.1)
    reaper = Reaper(bench.db, wakeups, pulse)
    assert await reaper.run_once() is True
    assert await reaper.run_once() is False


async def test_after_an_outage_no_lease_expires_for_its_own_length(
    bench: Bench, database_url: str, wakeups: Wakeups
) -> None:
    """Workers that could not heartbeat are not punished for the database; shorter leases are judged sooner."""
    short, long = await bench.submit(), await bench.submit()
    await bench.claim(limit=1, seconds=0.2)
    await bench.claim(limit=1, seconds=20)
    async with bench.db.tenant(bench.tenant) as connection:
        await connection.execute("UPDATE queue SET lease_until = clock_timestamp() - interval '1 hour'")
    async with proxied(database_url) as (proxy, dsn):
        db = await Database.connect(dsn, size=2)
        pulse = Pulse(db, wakeups, fits)
        await pulse.run_once()
        proxy.refuse()
        await pulse.run_once()
        assert pulse.healthy_seconds() == 0
        proxy.accept()
        await pulse.run_once()
        assert pulse.healthy_seconds() < 5
        await asyncio.sleep(0.3)
        reaper = Reaper(db, wakeups, pulse)
        await reaper.run_once()
        assert (await bench.load(short.task_id)).head.worker_id is None
        assert (await bench.load(long.task_id)).head.worker_id is not None
        await db.close()


async def test_losing_only_the_listen_connection_counts_as_an_outage(
    bench: Bench, wakeups: Wakeups, database_url: str
) -> None:
    pulse = Pulse(bench.db, wakeups, fits)
    await pulse.run_once()
    assert pulse.healthy_seconds() == float("inf")
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'waystation-wakeups'"
        " AND datname = current_database()"
    )
    await connection.close()
    async with asyncio.timeout(5):
        while wakeups.reconnected_at == float("-inf"):
            await asyncio.sleep(0.01)
    assert pulse.healthy_seconds() < 5


# Orphans, forgotten tasks, partitions ---------------------------------------------------------------------------------


async def test_a_task_admitted_while_its_agent_was_deleted_fails(bench: Bench, wakeups: Wakeups) -> None:
    made = await agents.put(
        bench.db, tenant=bench.tenant, agent_id=bench.agent, config={}, shared_with=(), holds=lambda _: True
    )
    assert isinstance(made, agents.Agent)
    before = await bench.submit()
    orphans = Orphans(bench.db, wakeups)
    await orphans.run_once()
    assert await bench.state(before.task_id) is TaskState.SUBMITTED
    assert await agents.delete(bench.db, tenant=bench.tenant, agent_id=bench.agent, force=False) == agents.LiveTasks()
    await bench.cancel(before.task_id)
    assert await agents.delete(bench.db, tenant=bench.tenant, agent_id=bench.agent, force=False) == agents.Deleted()
    late = await bench.submit()
    with wakeups.watch(task_key(bench.tenant, late.task_id)) as signal:
        await orphans.run_once()
        assert signal.take()
    assert await bench.state(late.task_id) is TaskState.FAILED
    assert await bench.state(before.task_id) is TaskState.CANCELED


async def test_tasks_of_an_agent_that_is_registered_again_do_not_fail(bench: Bench) -> None:
    async def put() -> None:
        await agents.put(bench.db, tenant="a", agent_id=bench.agent, config={}, shared_with=(), holds=lambda _: True)

    await put()
    old = await bench.submit()
    assert await agents.delete(bench.db, tenant="a", agent_id=bench.agent, force=True) == agents.Deleted()
    failing = agents.fail_live_tasks(bench.db, bench.agent)
    assert await anext(failing) == ("a", old.task_id)
    await put()
    new = await bench.submit()
    assert [failed async for failed in failing] == []
    assert await bench.state(new.task_id) is TaskState.SUBMITTED


async def test_live_tasks_are_found_page_by_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.ledger.agents.TASKS_PER_PAGE", 2)
    monkeypatch.setattr("app.ledger.tenants.PER_PAGE", 1)
    made = {("a", (await bench.submit()).task_id) for _ in range(5)}
    other = Bench(bench.db, tenant="b")
    made |= {("b", (await other.submit()).task_id) for _ in range(3)}
    elsewhere = Bench(bench.db, tenant="b", agent="elsewhere")
    await elsewhere.submit()
    pages = [page async for page in agents.live_tasks(bench.db, bench.agent)]
    assert all(0 < len(page) <= 2 for page in pages)
    found = [row for page in pages for row in page]
    assert len(found) == len(made)
    assert set(found) == made


async def test_a_task_that_waits_for_nobody_is_canceled(bench: Bench) -> None:
    sent = await bench.submit()
    await bench.append(await bench.claim_one(), status(TaskState.INPUT_REQUIRED))
    await Forgotten(bench.db, Wakeups(bench.db.dsn), older_seconds=3600).run_once()
    assert await bench.state(sent.task_id) is TaskState.INPUT_REQUIRED
    await Forgotten(bench.db, Wakeups(bench.db.dsn), older_seconds=0).run_once()
    assert await bench.state(sent.task_id) is TaskState.CANCELED


async def test_partitions_are_made_ahead(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    count = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass"
    before = await connection.fetchval(count)
    last = await connection.fetchval(
        "SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'events'::regclass"
    )
    await connection.execute(f'DROP TABLE "{last}"')
    await Partitions(database_url).run_once()
    assert await connection.fetchval(count) == before
    await connection.close()
    with pytest.raises(Unavailable):
        await Partitions("postgresql://u:p@127.0.0.1:1/nowhere").run_once()


# Gauges, directory, readiness -----------------------------------------------------------------------------------------


async def test_gauges_show_queues_without_naming_tenants(bench: Bench) -> None:
    await bench.submit()
    await bench.submit()
    await bench.claim_one()
    await QueueGauges(bench.db).refresh()
    text = metrics.render().decode()
    assert f'waystation_queue_depth{{agent="{bench.agent}"}} 1.0' in text
    assert f'waystation_leases_held{{agent="{bench.agent}"}} 1.0' in text
    assert 'tenant="' not in text


async def test_gauges_are_read_once_for_many_scrapes(bench: Bench) -> None:
    gauges = QueueGauges(bench.db)
    await asyncio.gather(*(gauges.refresh() for _ in range(20)))
    await bench.submit()
    await gauges.refresh()
    assert f'waystation_queue_depth{{agent="{bench.agent}"}}' not in metrics.render().decode(), "cached for 5 s"


def test_the_number_of_series_is_bounded() -> None:
    figures = [QueueFigures(f"agent-{n}", n, 1, 0, float(n)) for n in range(MAX_AGENTS + 50)]
    rows = bounded(figures)
    assert len(rows) == MAX_AGENTS + 1
    assert rows[0][0] == f"agent-{MAX_AGENTS + 49}"
    assert rows[-1] == (OTHER_AGENTS, sum(range(50)), 50, 49.0, 0)


async def test_the_directory_hears_of_changes_at_once(bench: Bench, wakeups: Wakeups) -> None:
    directory = AgentDirectory(bench.db, wakeups)
    assert await directory.get("x") is None

    async def put(tenant: str) -> None:
        config = {"n": tenant}
        outcome = await agents.put(
            bench.db, tenant=tenant, agent_id="x", config=config, shared_with=("b", "*"), holds=lambda _: True
        )
        assert isinstance(outcome, agents.Agent)

    assert await directory.get("y" * 64) is None
    assert list(directory._entries) == ["x"], "what is too long for an id takes no memory"
    await put("a")
    assert await directory.get("x") is None, "cached"
    wakeups.bump(AGENTS_KEY)
    agent = await directory.get("x")
    assert agent is not None
    assert (agent.tenant, agent.revision, agent.shared_with) == ("a", 1, frozenset({"b", "*"}))
    await agents.delete(bench.db, tenant="a", agent_id="x", force=True)
    async with asyncio.timeout(5):
        while not ((agent := await directory.get("x")) and agent.deleted):  # no hint: the cache's age is the floor
            await asyncio.sleep(0.05)
    directory.close()


async def test_readiness_names_its_reasons(bench: Bench, wakeups: Wakeups) -> None:
    problem: list[str | None] = ["run `waystation migrate`"]
    missing = ["https://issuer"]

    async def schema() -> str | None:
        return problem[0]

    async def keys() -> list[str]:
        return list(missing)

    pulse = Pulse(bench.db, wakeups, schema)
    readiness = Readiness(pulse, keys)
    assert len(readiness.problems()) == 2
    await readiness.run_once()
    await pulse.run_once()
    assert readiness.problems() == ["run `waystation migrate`", "no keys yet from https://issuer"]
    problem[0] = None
    missing.clear()
    await readiness.run_once()
    await pulse.run_once()
    assert readiness.problems() == []
    readiness.drain()
    assert readiness.problems() == ["draining"]


async def test_an_old_pulse_is_no_pulse(bench: Bench, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch) -> None:
    pulse = Pulse(bench.db, wakeups, fits)
    await pulse.run_once()
    assert pulse.problems() == []
    monkeypatch.setattr("app.maintenance.pulse.FRESH_SECONDS", -1.0)
    assert pulse.problems() == ["no answer from PostgreSQL within -1 s"]


# The shape of loops ---------------------------------------------------------------------------------------------------


class Counting(Loop):
    def __init__(self, outcomes: list[bool | Exception], interval: float = 0.01) -> None:
        super().__init__("counting", LoopConfig(interval, max_backoff=0.02))
        self.outcomes = outcomes
        self.done = asyncio.Event()

    async def run_once(self) -> bool:
        if not self.outcomes:
            self.done.set()
            return False
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_a_loop_goes_on_after_errors_and_stops(caplog: pytest.LogCaptureFixture) -> None:
    loop = Counting([True, Unavailable(), Unavailable(), RuntimeError("boom"), False])
    loop.start()
    await asyncio.wait_for(loop.done.wait(), 5)
    await loop.stop()
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2, "an outage is told once, a fault each time"
    assert "counting failed" in texts[1]
    with pytest.raises(RuntimeError):
        await _start_twice()


async def _start_twice() -> None:
    loop = Counting([])
    loop.start()
    try:
        loop.start()
    finally:
        await loop.stop()


async def test_more_work_is_done_without_a_pause() -> None:
    loop = Counting([True] * 200, interval=0.5)
    start = time.monotonic()
    loop.start()
    await asyncio.wait_for(loop.done.wait(), 5)
    await loop.stop()
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("config", [(0.0, 0.1), (1.0, 1.5)])
def test_bad_loop_configurations(config: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="not a loop configuration"):
        LoopConfig(*config)


async def test_a_released_lease_of_a_deleted_agent_is_still_answered(bench: Bench) -> None:
    """Tombstones: ``transitions`` never asks whether the agent lives."""
    await bench.submit()
    lease = await bench.claim_one()
    outcome = await transitions.fail_deleted(bench.db, tenant=lease.tenant, task_id=lease.task_id)
    assert outcome is True
    assert await transitions.fail_deleted(bench.db, tenant=lease.tenant, task_id=lease.task_id) is False
