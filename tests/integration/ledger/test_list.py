"""Pages of tasks (ledger.md: ListTasks): one moment of the ledger, whatever is written meanwhile."""

from typing import LiteralString
from uuid import UUID

import pytest

from app.ledger import tasks
from app.ledger.pool import Connection
from app.protocol.states import TaskState
from tests.support.ledger import Bench, chunk, status


async def latest_first(bench: Bench, made: list[UUID]) -> list[UUID]:
    """Tasks of one millisecond stand in the order of their ids."""
    heads = [head for task_id in made if (head := await tasks.head(bench.db, "a", task_id))]
    return [head.task_id for head in sorted(heads, key=lambda head: (-head.status_at.timestamp(), head.task_id.int))]


async def test_a_page_is_of_one_moment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's last task says where the next page begins: one that changes meanwhile may not lead back to the top."""
    made = await latest_first(bench, [(await bench.submit()).task_id for _ in range(3)])
    fetch, claimed = Connection.fetch, list[UUID]()

    async def claim_before_contents(self: Connection, sql: LiteralString, *args: object) -> object:
        if sql == tasks.CONTENTS:
            claimed.append((await bench.claim_one()).task_id)
        return await fetch(self, sql, *args)

    monkeypatch.setattr(Connection, "fetch", claim_before_contents)
    page = await tasks.list_tasks(bench.db, "a", limit=3)
    assert [task.head.task_id for task in page.tasks] == made
    assert [task.head.state for task in page.tasks] == [TaskState.SUBMITTED] * 3
    times = [task.head.status_at for task in page.tasks]
    assert times == sorted(times, reverse=True)
    assert [await bench.state(task_id) for task_id in claimed] == [TaskState.WORKING]


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
    assert [task.head.task_id for task in page.tasks] == await latest_first(bench, made)
    assert page.tasks[0].head.task_id == lease.task_id
    assert len(page.tasks[0].task["artifacts"][0]["parts"]) == 70
    async with bench.db.tenant("a") as connection:
        kept = await connection.fetch("SELECT seq FROM task_snapshots")
    assert [row["seq"] for row in kept] == [page.tasks[0].head.last_seq], "the next reader need not fold it again"
