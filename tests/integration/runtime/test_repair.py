"""The repair of live tasks that stand in no queue (aegra#476), which only a fault outside the ledger can make."""

import asyncio
from uuid import UUID

import asyncpg
import pytest

from app import metrics
from app.ledger import transitions
from app.ledger.rows import StaleLease
from app.ledger.wakeups import Wakeups, lease_key, queue_key
from app.maintenance.repair import Repair
from app.protocol.states import TaskState
from tests.support.ledger import Bench, key_of, status


async def lose(bench: Bench, *tasks: UUID) -> None:
    """Delete queue rows behind the ledger's back; and let all statuses be equally old, for pages to tell apart."""
    admin = await asyncpg.connect(bench.db.dsn)
    assert await admin.execute("DELETE FROM queue WHERE task_id = ANY($1)", tasks) == f"DELETE {len(tasks)}"
    await admin.execute("UPDATE tasks SET status_at = date_trunc('second', now())")
    await admin.close()


async def test_a_live_task_that_stands_in_no_queue_is_queued_again(
    bench: Bench, wakeups: Wakeups, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aegra#476. It keeps its attempt, and whoever still believes to hold it is told otherwise."""
    monkeypatch.setattr("app.ledger.repairs.TASKS_PER_PAGE", 2)
    running, paused, *waiting = [(await bench.submit()).task_id for _ in range(7)]
    lease = await bench.claim_one()
    assert lease.task_id == running
    await bench.append(await bench.claim_one(), status(TaskState.INPUT_REQUIRED))
    lost = [running, waiting[1], waiting[4]]
    await lose(bench, *lost)
    before = metrics.TASKS_REPAIRED._value.get()
    await Repair(bench.db, wakeups).run_once()
    assert metrics.TASKS_REPAIRED._value.get() == before, "their statuses are young"
    repair = Repair(bench.db, wakeups, older_seconds=0)
    with wakeups.watch(queue_key(bench.agent)) as pollers, wakeups.watch(lease_key("a", running)) as heartbeat:
        await repair.run_once()
        assert pollers.take()
        assert heartbeat.take()
    assert metrics.TASKS_REPAIRED._value.get() == before + 3
    assert all(str(task_id) in caplog.text for task_id in lost)
    await repair.run_once()
    assert metrics.TASKS_REPAIRED._value.get() == before + 3
    assert await bench.append(lease, status(TaskState.COMPLETED)) == StaleLease(TaskState.WORKING, lease.last_seq)
    claimed = {again.task_id: again for again in await bench.claim(limit=10)}
    assert set(claimed) == {running, *waiting}, "and the paused one was let alone"
    assert [claimed[task_id].attempt for task_id in lost] == [2, 1, 1]
    for again in claimed.values():
        assert (await bench.append(again, status(TaskState.COMPLETED))).state is TaskState.COMPLETED
    assert await bench.kinds(waiting[1]) == ["task.submitted", "turn.started", "status", "status"]
    assert await bench.state(paused) is TaskState.INPUT_REQUIRED


async def test_several_repairers_repair_a_task_once_and_a_locked_one_later(bench: Bench, wakeups: Wakeups) -> None:
    tasks = [(await bench.submit()).task_id for _ in range(20)]
    await lose(bench, *tasks)
    before = metrics.TASKS_REPAIRED._value.get()
    repairers = [Repair(bench.db, wakeups, older_seconds=0) for _ in range(4)]
    async with bench.db.tenant("a") as connection:
        await connection.fetch("SELECT 1 FROM tasks WHERE tenant_id = 'a' AND task_id = $1 FOR UPDATE", tasks[7])
        await asyncio.gather(*(one.run_once() for one in repairers))
    await repairers[0].run_once()
    assert metrics.TASKS_REPAIRED._value.get() == before + 20
    assert {lease.fence for lease in await bench.claim(limit=20)} == {2}


async def test_nothing_is_repaired_that_only_moves(bench: Bench, wakeups: Wakeups) -> None:
    """Submits, claims, pauses, resumes, retries and ends go on while the repair looks at nothing but them."""
    before = metrics.TASKS_REPAIRED._value.get()
    over = asyncio.Event()
    walks = 0

    async def walk() -> None:
        nonlocal walks
        while not over.is_set():
            await Repair(bench.db, wakeups, older_seconds=0).run_once()
            walks += 1

    async def live(name: str) -> None:
        mine = Bench(bench.db, agent=name)
        for _ in range(15):
            task_id = (await mine.submit()).task_id
            await mine.append(await mine.claim_one(), status(TaskState.INPUT_REQUIRED))
            await mine.send(task_id)
            retried = await mine.claim_one()
            await transitions.retry(mine.db, lease=key_of(retried), error="x", delay_seconds=0)
            lease = await mine.claim_one()
            assert (lease.fence, lease.attempt) == (5, 2), "no fence but of claims and ends"
            await mine.append(lease, status(TaskState.COMPLETED))

    walkers = [asyncio.create_task(walk()) for _ in range(2)]
    await asyncio.gather(*(live(f"x{n}") for n in range(4)))
    over.set()
    await asyncio.gather(*walkers)
    assert walks > 5
    assert metrics.TASKS_REPAIRED._value.get() == before
