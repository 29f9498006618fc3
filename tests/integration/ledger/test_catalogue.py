"""The catalogue reads the agents that somebody may see, not all of them. Guarded by what is read, not by time."""

import asyncio

import asyncpg
import pytest
from alembic import command

from app.ledger import agents, catalogue, migrations
from app.ledger.rows import Agent
from tests.integration.ledger.test_sql import explain
from tests.support.ledger import Bench, open_bench

# As the release before inserts them.
MANY = """
INSERT INTO agents (agent_id, tenant_id, config, shared_with, revision, created_at, updated_at)
SELECT 'agent-' || lpad(n::text, 5, '0'), 't' || n % 7,
       '{"card":{"name":"\\"cardVisibility\\":\\"public\\"","skills":[]},"cardVisibility":"' ||
       CASE WHEN n % 10 = 0 THEN 'public' ELSE 'token' END || '"}',
       '{}', 1, now(), now()
  FROM generate_series(1, 3000) n;
UPDATE agents SET deleted_at = now() WHERE agent_id = 'agent-00100';
"""
PUBLIC = [f"agent-{number:05}" for number in range(10, 3001, 10) if number != 100]


async def pages(bench: Bench, tenant: str | None, limit: int = 10) -> list[str]:
    found: list[str] = []
    after = ""
    while True:
        page = await catalogue.list_cards(bench.db, tenant, like=catalogue.EVERYTHING, after=after, limit=limit)
        found += [agent.agent_id for agent in page.agents]
        after = page.after
        if not after:
            return found


async def fill(database_url: str) -> None:
    owner = await asyncpg.connect(database_url)
    await owner.execute(MANY)
    await owner.close()


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("plans", ["force_generic_plan", "force_custom_plan"])
async def test_plans_of_a_page_on_3_000_agents(database_url: str, plans: str, analysed: bool) -> None:
    await fill(database_url)
    admin = await asyncpg.connect(database_url)
    await admin.execute(f"{'ANALYZE agents; ' if analysed else ''}SET plan_cache_mode = {plans}")
    for after in ("", "agent-01500"):
        page = await explain(admin, catalogue.VISIBLE, None, after, "{}", 11, 10, catalogue.PAGE_BYTES)
        assert "agents_public" in page.text
        assert page.rows_read <= (11 if analysed else 300)
    if analysed:
        mine = await explain(admin, catalogue.VISIBLE, "t3", "", "{}", 11, 10, catalogue.PAGE_BYTES)
        assert mine.rows_read <= 200, "as many as it takes: every seventh is the tenant's own"
    await admin.close()


async def test_a_tenant_sees_its_own_and_the_public_ones_once_and_in_order(database_url: str) -> None:
    await fill(database_url)
    own = {f"agent-{number:05}" for number in range(3, 3001, 7)}
    async with open_bench(database_url) as bench:
        assert await pages(bench, "t3") == sorted(own | set(PUBLIC))
        async with bench.db.tenant("t5") as connection:
            await connection.execute("UPDATE agents SET shared_with = '{t3}' WHERE agent_id IN ('agent-00005', 'x')")
        assert await pages(bench, "t3") == sorted(own | set(PUBLIC) | {"agent-00005"})


async def test_a_card_is_public_as_long_as_the_settings_say_so(bench: Bench) -> None:
    for settings, seen in (("public", ["x"]), ("token", []), ("public", ["x"])):
        config = {"card": {}, "cardVisibility": settings}
        agent = await agents.put(
            bench.db, tenant="a", agent_id="x", config=config, shared_with=(), holds=lambda _: True
        )
        assert isinstance(agent, Agent)
        assert await pages(bench, None) == seen


async def test_agents_from_before_the_migration_are_listed(empty_database_url: str) -> None:
    config = migrations.alembic_config(empty_database_url)
    await asyncio.to_thread(command.upgrade, config, "0001_pre")
    await fill(empty_database_url)
    await migrations.migrate(empty_database_url)
    async with open_bench(empty_database_url) as bench:
        assert await pages(bench, None) == PUBLIC
