"""Pages of tasks (ledger.md: ListTasks): one moment of the ledger, whatever is written meanwhile."""

from typing import LiteralString

import pytest

from app.ledger import tasks
from app.ledger.pool import Connection
from app.protocol.states import TaskState
from tests.support.ledger import Bench, chunk, status


async def test_a_page_is_of_one_moment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's last task says where the next page begins: one that changes meanwhile may not lead back to the top."""
    made = [(await bench.submit()).task_id for _ in range(3)]
    fetch = Connection.fetch

    async def claim_before_contents(self: Connection, sql: LiteralString, *args: object) -> object:
        if sql == tasks.CONTENTS:
            await bench.claim_one()
        return await fetch(self, sql, *args)

    monkeypatch.setattr(Connection, "fetch", claim_before_contents)
    page = await tasks.list_tasks(bench.db, "a", limit=3)
    assert [task.head.task_id for task in page.tasks] == made[::-1]
    assert [task.head.state for task in page.tasks] == [TaskState.SUBMITTED] * 3
    times = [task.head.status_at for task in page.tasks]
    assert times == sorted(times, reverse=True)
    assert await bench.state(made[0]) is TaskState.WORKING


async def test_a_page_ends_where_its_contents_are_too_large(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(7):
        await bench.submit("x" * 1000)
    whole = await tasks.list_tasks(bench.db, "a", limit=100)
    monkeypatch.setattr(tasks, "EVENTS_AT_ONCE", 3)
    for room, sizes in ((1, [1] * 7), (3000, [2, 2, 2, 1]), (5000, [4, 3]), (10_000, [7])):
        monkeypatch.setattr(tasks, "PAGE_BYTES", room)
        page = await tasks.list_tasks(bench.db, "a", limit=100)
        pages = [page.tasks]
        while page.more:
            last = page.tasks[-1].head
            page = await tasks.list_tasks(bench.db, "a", limit=100, cursor=(last.status_at, last.task_id))
            pages.append(page.tasks)
        assert [len(found) for found in pages] == sizes
        assert [task for found in pages for task in found] == whole.tasks


async def test_long_logs_are_read_apart_and_in_order(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "EVENTS_AT_ONCE", 5)
    made = [(await bench.submit()).task_id for _ in range(4)]
    lease = await bench.claim_one()
    await bench.append(
        lease, *(chunk(str(number), append=number > 0) for number in range(70)), status(TaskState.WORKING)
    )
    page = await tasks.list_tasks(bench.db, "a", limit=100)
    assert [task.head.task_id for task in page.tasks] == [made[0], *made[:0:-1]]
    assert len(page.tasks[0].task["artifacts"][0]["parts"]) == 70
    async with bench.db.tenant("a") as connection:
        kept = await connection.fetch("SELECT seq FROM task_snapshots")
    assert [row["seq"] for row in kept] == [page.tasks[0].head.last_seq], "the next reader need not fold it again"
