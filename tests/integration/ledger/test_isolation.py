"""Row level security is the second line: with our own tenant filters out of the way it holds (security.md)."""

import asyncpg
import pytest

from app.auth.vault import Vault
from app.ledger import webhook_secrets
from app.ledger.pool import APP_ROLE, Database
from app.protocol.states import TaskState
from tests.integration.ledger.outbox import claim, config, configure
from tests.support.ledger import Bench, chunk, status

TENANT_TABLES = (
    *("tasks", "events", "turns", "artifacts", "idempotency", "task_snapshots", "queue", "lanes"),
    *("push_configs", "deliveries", "webhook_secrets"),
)
VAULT = Vault([b"k" * 32])


async def fill(bench: Bench) -> None:
    """A row of each tenant in every table."""
    for tenant in ("a", "b"):
        one = Bench(bench.db, tenant=tenant)
        task_id = (await one.submit(message_id="same", context_id="same")).task_id
        lease = await one.claim_one()
        assert lease.tenant == tenant
        await configure(one, task_id, config())
        await webhook_secrets.live(bench.db, VAULT, tenant)
        await one.append(lease, chunk("0"), *(chunk("x", append=True) for _ in range(70)))
        await one.load(task_id)


@pytest.mark.parametrize("table", TENANT_TABLES)
async def test_a_transaction_sees_the_tenants_it_named_and_no_other(bench: Bench, table: str) -> None:
    await fill(bench)
    unfiltered = f"SELECT DISTINCT tenant_id FROM {table}"
    for named, seen in ((("a",), ["a"]), (("b",), ["b"]), (("a", "b"), ["a", "b"]), (("c",), [])):
        async with bench.db.tenant(*named) as connection:
            rows = await connection.fetch(unfiltered)  # pyright: ignore[reportArgumentType]
        assert sorted(row["tenant_id"] for row in rows) == seen
    assert await bench.db.fetch(unfiltered) == [], "no tenant named: nothing seen"  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("table", [table for table in TENANT_TABLES if table != "events"])
async def test_an_unfiltered_write_touches_the_named_tenant_only(bench: Bench, table: str) -> None:
    await fill(bench)
    async with bench.db.tenant("b") as connection:
        rows = await connection.fetch(  # pyright: ignore[reportArgumentType]
            f"UPDATE {table} SET tenant_id = tenant_id RETURNING tenant_id"
        )
    assert {row["tenant_id"] for row in rows} == {"b"}


async def test_a_row_cannot_be_given_to_another_tenant(bench: Bench) -> None:
    await fill(bench)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with bench.db.tenant("b") as connection:
            await connection.execute("UPDATE tasks SET tenant_id = 'a'")


async def test_the_log_is_append_only(bench: Bench) -> None:
    await fill(bench)
    for statement in ("UPDATE events SET body = ''", "DELETE FROM events", "TRUNCATE events"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with bench.db.tenant("a") as connection:
                await connection.execute(statement)


async def test_the_application_has_no_grant_on_any_partition(bench: Bench) -> None:
    partitions = await bench.db.fetch(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'events'::regclass"
    )
    assert len(partitions) >= 4
    for row in partitions:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with bench.db.tenant("a") as connection:
                await connection.fetch(f"SELECT * FROM {row['name']}")  # pyright: ignore[reportArgumentType]


async def test_the_pool_is_the_application_role_for_good(bench: Bench) -> None:
    for reset in ("RESET ROLE", "RESET ALL", "SET SESSION AUTHORIZATION DEFAULT"):
        await bench.db.fetch(reset)
        row = await bench.db.call(
            "SELECT current_user::text AS name, rolbypassrls, rolsuper FROM pg_roles WHERE rolname = current_user"
        )
        assert (row["name"], row["rolbypassrls"], row["rolsuper"]) == (APP_ROLE, False, False)


async def test_whom_a_claim_of_deliveries_serves_it_shows_nothing_of_others(bench: Bench) -> None:
    """Two tenants with equal config ids and one receiver: each delivery has its own tenant's URL, secret and body."""
    for tenant in ("a", "b"):
        one = Bench(bench.db, tenant=tenant)
        task_id = (await one.submit()).task_id
        await configure(one, task_id, config("same", f"https://one.example/{tenant}", secret=tenant.encode()))
        await one.append(await one.claim_one(), status(TaskState.COMPLETED, text=tenant))
    for found in await claim(bench):
        assert found.url == f"https://one.example/{found.tenant}"
        assert found.secret == found.tenant.encode()
        assert f'"taskId":"{found.task_id}"'.encode() in (found.body or b"")


async def test_functions_refuse_to_run_without_a_tenant(bench: Bench) -> None:
    for tenant in ("", None, "a,b"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await bench.db.fetch("SELECT * FROM task_head($1, gen_random_uuid())", tenant)


async def test_what_one_call_named_is_forgotten_by_the_next(database_url: str) -> None:
    db = await Database.connect(database_url, size=1)
    bench = Bench(db)
    await fill(bench)
    assert await db.fetch("SELECT 1 FROM tasks") == []
    assert await db.fetch("SELECT 1 FROM queue") == []
    await bench.claim(limit=5)
    assert await db.fetch("SELECT 1 FROM queue") == [], "app.dispatch ends with the claim"
    assert {one.tenant for one in await claim(bench)} == {"a", "b"}
    assert await db.fetch("SELECT 1 FROM deliveries") == [], "and so with that of deliveries"
    await db.close()


async def test_equal_ids_of_two_tenants_do_not_meet(bench: Bench) -> None:
    other = Bench(bench.db, tenant="b")
    mine = await bench.submit(message_id="same", context_id="same")
    theirs = await other.submit(message_id="same", context_id="same")
    assert mine.task_id != theirs.task_id
    for lease in await bench.claim(limit=2):
        owner = bench if lease.tenant == "a" else other
        await owner.append(lease, chunk(f"of {lease.tenant}"), status(TaskState.COMPLETED))
    assert (await bench.load(mine.task_id)).task["artifacts"][0]["parts"] == [{"text": "of a"}]
    assert (await other.load(theirs.task_id)).task["artifacts"][0]["parts"] == [{"text": "of b"}]
