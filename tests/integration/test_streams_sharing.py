"""What streams cost: shared reads, and one poll for all idle readers (performance.md, How cost should grow)."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio

from app.auth.handles import Handles
from app.auth.vault import Vault
from app.ledger import events, transitions
from app.ledger.directory import AgentDirectory
from app.ledger.inputs import Keys, TaskSettings
from app.ledger.pool import Database
from app.ledger.rows import EventPage, Sent
from app.ledger.wakeups import Wakeups, task_key
from app.net.egress import Egress, EgressPolicy
from app.operations.deps import Operations
from app.operations.log_reader import LogReader
from app.operations.served_cards import ServedCards
from app.operations.shared_reads import SharedReads


@pytest_asyncio.fixture
async def ops(database_url: str) -> AsyncIterator[Operations]:
    """Operations on a real database; nothing of them runs by itself, wake-ups of other replicas are not heard."""
    db = await Database.connect(database_url, size=4)
    wakeups = Wakeups(database_url)
    directory = AgentDirectory(db, wakeups)
    yield Operations(
        db,
        wakeups,
        directory,
        Handles([b"x" * 32]),
        ServedCards([b"x" * 32]),
        egress=Egress(EgressPolicy()),
        vault=Vault([b"x" * 32]),
    )
    directory.close()
    await db.close()


async def submit(ops: Operations, key: str, tenant: str = "a") -> UUID:
    message = f'{{"messageId":"{key}","role":"ROLE_USER","parts":[{{"text":"go"}}]}}'
    sent = await transitions.submit(
        ops.db,
        tenant=tenant,
        subject="u1",
        agent_id="clerk",
        context_id=None,
        message=message,
        keys=Keys(key, None, b"x" * 32),
        settings=TaskSettings(),
    )
    assert isinstance(sent, Sent)
    return sent.task_id


async def opened(ops: Operations, task_id: UUID, tenant: str = "a") -> LogReader:
    """A reader that has read what is there."""
    reader = LogReader(ops, tenant, task_id)
    await reader.start()
    await reader.read()
    return reader


async def test_readers_at_one_place_share_their_reads(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = await submit(ops, "m1")
    readers = [await opened(ops, task_id) for _ in range(50)]
    reads = 0
    read = events.read

    async def counted(db: Database, tenant: str, task: UUID, after: int, limit: int) -> EventPage | None:
        nonlocal reads
        reads += 1
        return await read(db, tenant, task, after, limit)

    monkeypatch.setattr(events, "read", counted)
    waiting = [asyncio.create_task(reader.next(10)) for reader in readers]
    await asyncio.sleep(0)
    await transitions.cancel(ops.db, tenant="a", subject="u1", task_id=task_id)
    ops.wakeups.bump(task_key("a", task_id))
    found = await asyncio.gather(*waiting)
    assert [[event.seq for event in batch] for batch in found] == [[2]] * 50
    assert reads <= 2
    assert all(reader.ended for reader in readers)
    for reader in readers:
        reader.close()


async def test_a_read_never_answers_what_it_cannot_have_seen(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that began before a commit is not shared with a reader that came after the commit."""
    task_id = await submit(ops, "m1")
    shared = SharedReads(ops.db)
    began, go_on = asyncio.Event(), asyncio.Event()
    read = events.read

    async def slow(db: Database, tenant: str, task: UUID, after: int, limit: int) -> EventPage | None:
        page = await read(db, tenant, task, after, limit)
        if not began.is_set():
            began.set()
            await go_on.wait()
        return page

    monkeypatch.setattr(events, "read", slow)
    before = asyncio.create_task(shared.read("a", task_id, 1, 10))
    await began.wait()
    await transitions.cancel(ops.db, tenant="a", subject="u1", task_id=task_id)
    after = [asyncio.create_task(shared.read("a", task_id, 1, 10)) for _ in range(3)]
    await asyncio.sleep(0)
    after[0].cancel()
    go_on.set()
    page = await before
    assert page is not None
    assert page.events == []
    for task in after[1:]:
        page = await task
        assert page is not None
        assert [event.seq for event in page.events] == [2]
    with pytest.raises(asyncio.CancelledError):
        await after[0]


async def test_the_floor_wakes_readers_whose_hint_was_lost(ops: Operations) -> None:
    tenants = ["a", "b"]
    quiet = [await opened(ops, await submit(ops, f"quiet-{tenant}", tenant), tenant) for tenant in tenants]
    grown = [await opened(ops, await submit(ops, f"grown-{tenant}", tenant), tenant) for tenant in tenants]
    waiting = {reader: asyncio.create_task(reader.next(10)) for reader in quiet + grown}
    for reader in grown:
        await transitions.cancel(ops.db, tenant=reader.tenant, subject="u1", task_id=reader.task_id)
    await ops.floor.run_once()
    for reader in grown:
        assert [event.seq for event in await waiting[reader]] == [2]
    assert not any(waiting[reader].done() for reader in quiet)
    for reader in quiet:
        waiting[reader].cancel()
    for reader in quiet + grown:
        reader.close()
    assert await ops.floor.run_once() is False


async def test_another_incarnation_ends_the_readers_of_the_old_one(ops: Operations) -> None:
    reader = await opened(ops, await submit(ops, "m1"))
    reader.incarnation += 1  # as if it had begun in an earlier life of the database
    waiting = asyncio.create_task(reader.next(10))
    await ops.floor.run_once()
    assert (await waiting, reader.ended) == ([], True)
    reader.close()
