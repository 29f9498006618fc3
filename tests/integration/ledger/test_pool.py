"""The pool: what PostgreSQL's failures look like from above (reliability.md)."""

import asyncio
import itertools
from typing import LiteralString, cast
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.errors import Unavailable
from app.ledger import migrations
from app.ledger.pool import Database
from app.ledger.rows import Sent
from tests.support.ledger import Bench
from tests.support.postgres import OwnPostgres


async def test_a_commit_that_no_standby_confirmed_is_no_acknowledgement(own_postgres: OwnPostgres) -> None:
    """A canceled wait for the synchronous standby answers success with a warning: an unknown outcome, so 503."""
    dsn = own_postgres.dsn("postgres")
    await migrations.migrate(dsn)
    admin = await asyncpg.connect(dsn)
    db = await Database.connect(dsn, size=2)
    bench = Bench(db)
    await bench.submit(message_id="before")
    await admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
    await admin.execute("SELECT pg_reload_conf()")
    sending, message_id = await _waiting_submit(bench, admin)
    with pytest.raises(Unavailable):
        await sending
    await admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
    await admin.execute("SELECT pg_reload_conf()")
    again = await bench.submit(message_id=message_id)
    assert again.replayed, "the row was there all the time; the retry's own write confirms it"
    await db.close()
    await admin.close()


async def _waiting_submit(
    bench: Bench, admin: "asyncpg.Connection[asyncpg.Record]"
) -> tuple[asyncio.Future[Sent], str]:
    """A submit whose wait for the standby has been canceled, and its messageId. The setting comes into force when the
    checkpointer has read it: submits before that do not wait."""
    for number in itertools.count():
        message_id = f"doubtful-{number}"
        sending = asyncio.ensure_future(bench.submit(message_id=message_id))
        while not sending.done():
            if await admin.fetchval("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):
                return sending, message_id
    raise AssertionError


async def test_postgresql_away_and_back(own_postgres: OwnPostgres) -> None:
    dsn = own_postgres.dsn("postgres")
    await migrations.migrate(dsn)
    db = await Database.connect(dsn, size=2)
    bench = Bench(db)
    task_id = (await bench.submit()).task_id
    await own_postgres.kill()
    with pytest.raises(Unavailable) as away:
        await bench.load(task_id)
    assert away.value.retry_after is not None
    assert 1 <= away.value.retry_after <= 5
    await own_postgres.resume()
    assert (await bench.load(task_id)).head.last_seq == 1
    await db.close()


async def test_a_pool_may_be_opened_before_postgresql_is_there(own_postgres: OwnPostgres) -> None:
    dsn = own_postgres.dsn("postgres")
    await migrations.migrate(dsn)
    await own_postgres.kill()
    db = await Database.connect(dsn, size=2)
    with pytest.raises(Unavailable):
        await db.ping()
    await own_postgres.resume()
    assert await db.ping() > 0
    assert (await db.call("SELECT current_user::text AS name"))["name"] == "waystation_app"
    await db.close()


async def test_a_missing_partition_is_an_outage_not_a_fault(database_url: str) -> None:
    admin = await asyncpg.connect(database_url)
    for row in await admin.fetch(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'events'::regclass"
    ):
        await admin.execute(f"DROP TABLE {row['name']}")
    db = await Database.connect(database_url, size=1)
    with pytest.raises(Unavailable):
        await Bench(db).submit()
    assert await migrations.ensure_partitions(database_url) == 4
    assert (await Bench(db).submit()).last_seq == 1
    await db.close()
    await admin.close()


@pytest.mark.parametrize("state", ["53100", "53200", "53300", "57014", "57P01", "57P03", "58030", "25006"])
async def test_what_the_server_cannot_do_now_is_an_outage(bench: Bench, state: str) -> None:
    """Disk full, out of memory, shutting down …: none of it is the caller's fault or ours."""
    raising = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$"
    with pytest.raises(Unavailable):
        await bench.db.fetch(cast("LiteralString", raising))
    assert await bench.db.ping() > 0


async def test_a_database_that_is_gone_or_refuses_its_login_is_an_outage(database_url: str) -> None:
    elsewhere = urlsplit(database_url)._replace(path="/no_such_database").geturl()
    stranger = urlsplit(database_url)._replace(netloc=database_url.split("@")[1].split("/")[0]).geturl()
    for dsn in (elsewhere, stranger.replace("://", "://nobody:wrong@")):
        db = await Database.connect(dsn, size=1)
        with pytest.raises(Unavailable):
            await db.ping()
        await db.close()
