"""A claim of deliveries reads what it takes, however much there is. Guarded by what is read, not by time."""

from typing import Any

import asyncpg

from app.ledger import deliveries
from tests.integration.ledger.test_sql import buffers, explain
from tests.support.ledger import open_bench

SLOW = "https://slow.example:443"
BACKLOG = """
ALTER TABLE deliveries SET (autovacuum_enabled = false);
INSERT INTO push_configs (tenant_id, task_id, config_id, url, destination, from_seq, created_at, created_by)
SELECT 'a', md5(n::text)::uuid, 'c', 'https://slow.example/x', 'https://slow.example:443', 1, now(), 'u'
  FROM generate_series(1, 60000) n;
INSERT INTO deliveries (tenant_id, task_id, config_id, seq, destination, due_at, created_at)
SELECT 'a', md5(n::text)::uuid, 'c', s, 'https://slow.example:443',
       CASE WHEN s = 2 THEN now() - n * interval '1 ms' END, now()
  FROM generate_series(1, 60000) n, generate_series(2, 3) s;
INSERT INTO deliveries (tenant_id, task_id, config_id, seq, destination, due_at, created_at)
SELECT 'b', md5(n::text)::uuid, 'c', 2, 'https://' || n || '.example:443',
       now() - interval '1 s' + n * interval '1 h', now()
  FROM generate_series(0, 20) n;
"""
MANY_RECEIVERS = """
ALTER TABLE deliveries SET (autovacuum_enabled = false);
INSERT INTO deliveries (tenant_id, task_id, config_id, seq, destination, due_at, created_at)
SELECT 'a', md5(n::text)::uuid, 'c', 2, 'https://' || n || '.example:443', {due}, now() FROM generate_series(1, 20000) n
"""
FIRST = """
SELECT s.tenant_id, s.destination, s.due_at FROM deliveries s
 WHERE s.due_at IS NOT NULL AND (s.tenant_id, s.destination) > ($1, $2)
 ORDER BY s.tenant_id, s.destination, s.due_at LIMIT 1"""
OLDEST = """
SELECT s.tenant_id, s.destination, s.due_at FROM deliveries s WHERE s.due_at <= $1 ORDER BY s.due_at LIMIT 1000"""
NEXT_TENANT = """
SELECT s.tenant_id, s.destination, s.due_at FROM deliveries s WHERE s.due_at IS NOT NULL AND s.tenant_id > $1
 ORDER BY s.tenant_id, s.destination, s.due_at LIMIT 1"""
PICK = """
SELECT s.tenant_id, s.task_id, s.config_id, s.seq FROM deliveries s
 WHERE s.tenant_id = $1 AND s.destination = $2 AND s.due_at <= $3
 ORDER BY s.due_at LIMIT $4 FOR UPDATE SKIP LOCKED"""
HEAD = """
SELECT seq FROM deliveries WHERE tenant_id = 'a' AND task_id = $1::uuid AND config_id = 'c'
   AND state = 'pending' AND NOT redelivery
 ORDER BY seq LIMIT 1"""


async def test_plans_on_60_000_due_deliveries_of_one_receiver_that_nobody_analysed(database_url: str) -> None:
    admin = await asyncpg.connect(database_url)
    await admin.execute(BACKLOG)
    now = await admin.fetchval("SELECT clock_timestamp()")
    task = await admin.fetchval("SELECT max(task_id::text) FROM deliveries")
    await admin.execute("SET plan_cache_mode = force_generic_plan; SET ROLE waystation_app; SET app.dispatch = 'on'")
    for sql, *args in ((FIRST, "a", ""), (FIRST, "a", SLOW), (NEXT_TENANT, "a"), (PICK, "a", SLOW, now, 8)):
        plan = await explain(admin, sql, *args)
        assert "deliveries_due" in plan.text
        assert "Seq Scan" not in plan.text
        assert plan.rows_read <= 8
    oldest = await explain(admin, OLDEST, now)
    assert "deliveries_due_first" in oldest.text
    assert oldest.rows_read <= 1000
    await admin.execute("SET app.tenants = ',a,'; SET app.dispatch = 'off'")
    head = await explain(admin, HEAD, task)
    assert "deliveries_by_state" in head.text
    assert head.rows_read <= 2
    await admin.close()


async def test_a_claim_reads_little_of_what_it_leaves(database_url: str) -> None:
    reads = await buffers_of_claims(
        database_url, BACKLOG, {"avoid": (("a", SLOW),)}, {"busy": {("a", SLOW): 8}}, {}, {"full": ("a",)}
    )
    assert all(0 < read < 6000 for read in reads), f"{reads} buffers for 60,000 rows"


async def test_thousands_of_receivers_that_wait_cost_a_claim_nothing(database_url: str) -> None:
    (read,) = await buffers_of_claims(database_url, MANY_RECEIVERS.format(due="now() + interval '1 h'"), {})
    assert 0 < read < 300


async def test_a_tenant_with_thousands_of_receivers_makes_claims_slow_to_a_bound(database_url: str) -> None:
    (read,) = await buffers_of_claims(database_url, MANY_RECEIVERS.format(due="now()"), {})
    assert 0 < read < 15_000, "at most 1,000 of 20,000 are looked for"


async def buffers_of_claims(database_url: str, backlog: str, *options: dict[str, Any]) -> list[int]:
    """How many blocks a claim reads with each of these options, its plans being made."""
    admin = await asyncpg.connect(database_url)
    await admin.execute(backlog)
    await admin.close()
    async with open_bench(database_url, size=1) as bench:

        async def read_by(options: dict[str, Any]) -> int:
            """The one backend tells its counts at once."""
            asked = {
                "limit": 8,
                "limit_bytes": 1 << 20,
                "per_receiver": 8,
                "busy": {},
                "avoid": (),
                "hold_seconds": 60,
            } | options
            before = await buffers(database_url)
            await deliveries.claim(bench.db, **asked)
            await bench.db.fetch("SELECT pg_stat_force_next_flush()")
            return await buffers(database_url) - before

        await read_by({"per_receiver": 0})
        return [await read_by(one) for one in options]
