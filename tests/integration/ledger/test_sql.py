"""The SQL itself: every constant prepares, rows match rows.py, one writer of state, plans hold on a large backlog."""

import importlib
import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic.script import ScriptDirectory

import app.ledger
from app.ledger import functions, migrations
from app.protocol.states import INTERRUPTED, TERMINAL, TaskState
from tests.support.ledger import Bench, open_bench

SQL = Path(app.ledger.__file__).parent / "sql"


def constants() -> list[tuple[str, str]]:
    """Every SQL constant of the ledger's modules."""
    found: list[tuple[str, str]] = []
    for module in pkgutil.iter_modules(app.ledger.__path__):
        if module.name in ("schema", "migrations"):
            continue
        for name, value in vars(importlib.import_module(f"app.ledger.{module.name}")).items():
            if (
                name.isupper()
                and isinstance(value, str)
                and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", value)
            ):
                found.append((f"{module.name}.{name}", value))
    return found


@pytest.mark.parametrize(("name", "sql"), constants(), ids=[name for name, _ in constants()])
async def test_every_sql_constant_prepares_as_the_application_role(bench: Bench, name: str, sql: str) -> None:
    async with bench.db.tenant("a") as connection:
        statement = await connection._raw.prepare(sql)
        assert statement.get_attributes() or not sql.lstrip().startswith("SELECT")


async def test_every_function_compiles(bench: Bench) -> None:
    """plpgsql looks at a statement when it first runs it; here each function's tables and columns are looked at now."""
    names = await bench.db.fetch("""
        SELECT p.oid::regprocedure::text AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = 'public'""")
    defined = {found.split("(")[0] for found in (row["name"] for row in names)}
    written = {name for path in SQL.glob("*.sql") for name in re.findall(r"FUNCTION (\w+)\(", path.read_text())}
    assert written == defined


def test_one_statement_writes_a_tasks_state() -> None:
    """Style: one function writes state. An UPDATE of tasks that sets it stands in 20_advance.sql and nowhere else."""
    pattern = re.compile(r"UPDATE tasks\b[^;]*?\bSET\b[^;]*?\bstate = ", re.DOTALL)
    hits = {path.name: len(pattern.findall(path.read_text())) for path in SQL.glob("*.sql")}
    assert {name: count for name, count in hits.items() if count} == {"20_advance.sql": 1}
    python = [
        path for path in SQL.parent.glob("*.py") if re.search(r"UPDATE\s+(tasks|turns|queue)\b", path.read_text())
    ]
    assert python == []


async def test_states_of_sql_and_python_agree(bench: Bench) -> None:
    for state in list(TaskState)[1:]:
        row = await bench.db.call(
            "SELECT is_terminal($1) AS terminal, is_interrupted($1) AS interrupted, state_name($1) AS name", state
        )
        assert (row["terminal"], row["interrupted"], row["name"]) == (
            state in TERMINAL,
            state in INTERRUPTED,
            state.wire,
        )


def test_revisions_are_told_by_their_files_names() -> None:
    script = ScriptDirectory.from_config(migrations.alembic_config(""))
    assert migrations.revisions() == [found.revision for found in reversed(list(script.walk_revisions()))]


async def test_migrate_is_idempotent_and_checked(empty_database_url: str) -> None:
    said = await migrations.check(empty_database_url)
    assert said is not None
    assert "waystation migrate" in said
    await migrations.migrate(empty_database_url)
    await migrations.migrate(empty_database_url)
    assert await migrations.check(empty_database_url) is None


async def test_functions_of_another_build_are_replaced_as_a_whole(empty_database_url: str) -> None:
    """A checkout that was updated on a database it has made before: same revision, other functions."""
    await migrations.migrate(empty_database_url)
    admin = await asyncpg.connect(empty_database_url)
    await admin.execute("DROP FUNCTION task_forget; UPDATE meta SET functions = 'of another build'")
    await admin.execute("CREATE FUNCTION task_forget(text, float8, int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    await admin.execute("CREATE FUNCTION somebody_elses() RETURNS int LANGUAGE sql AS 'SELECT 7'")
    await migrations.migrate(empty_database_url)
    assert await admin.fetch("SELECT task_id FROM task_forget('a', 1, 1)") == []
    assert await admin.fetchval("SELECT somebody_elses()") == 7
    assert not await functions.install(empty_database_url), "these are this build's"
    await admin.close()


@pytest.mark.parametrize(("found", "refused"), [("0999_pre", False), ("0999_post", True), ("0000_unknown", True)])
async def test_a_newer_schema_is_taken_only_while_it_is_expanded(
    empty_database_url: str, found: str, refused: bool
) -> None:
    await migrations.migrate(empty_database_url)
    connection = await asyncpg.connect(empty_database_url)
    await connection.execute("UPDATE alembic_version SET version_num = $1", found)
    await connection.close()
    assert (await migrations.check(empty_database_url) is not None) == refused


async def test_events_live_in_the_partition_of_their_tasks_time(bench: Bench) -> None:
    await bench.submit()
    admin = await asyncpg.connect(bench.db.dsn)
    (row,) = await admin.fetch(
        "SELECT tableoid::regclass::text AS name, to_char(at AT TIME ZONE 'UTC', 'YYYYMM') AS month FROM events"
    )
    await admin.close()
    assert row["name"] == f"events_{row['month']}"


BACKLOG = """
INSERT INTO lanes (tenant_id, agent_id, fair_key) SELECT 't' || n, 'x', '' FROM generate_series(1, 20) n;
INSERT INTO queue (tenant_id, task_id, agent_id, fair_key, priority, queued_at, run_at, fence, lease_seconds)
SELECT 't' || 1 + n % 20, gen_random_uuid(), 'x', '', 5, now(), now() - n * interval '1 ms', 0, 30
  FROM generate_series(1, 250000) n;
UPDATE queue SET worker = 'w', lease_until = now() + interval '1 h'
 WHERE task_id IN (SELECT task_id FROM queue LIMIT 2000);
"""
PICK = """
SELECT s.tenant_id, s.task_id FROM queue s
 WHERE s.agent_id = $1 AND s.tenant_id = $2 AND s.fair_key = $3 AND s.worker IS NULL AND s.run_at <= $4
 ORDER BY s.priority DESC, s.run_at, s.task_id LIMIT $5 FOR UPDATE SKIP LOCKED"""
HELD = """
SELECT s.tenant_id, s.task_id FROM queue s WHERE s.worker IS NOT NULL AND (s.lease_until < $1 OR s.signal_until <= $1)
 ORDER BY s.tenant_id, s.task_id LIMIT 100"""

RUNNING = """
SELECT 1 FROM queue WHERE worker IS NOT NULL AND agent_id = $1 ORDER BY tenant_id, task_id LIMIT $2"""


@pytest.mark.slow
async def test_plans_on_250_000_queue_rows_that_nobody_analysed(database_url: str) -> None:
    """ledger.md: without the right index a claim falls from 1,200/s to 7/s. Guarded by what is read, not by time."""
    admin = await asyncpg.connect(database_url)
    await admin.execute("ALTER TABLE queue SET (autovacuum_enabled = false)")
    await admin.execute(BACKLOG)
    await admin.execute("SET plan_cache_mode = force_generic_plan")
    now = await admin.fetchval("SELECT clock_timestamp()")
    claim = await explain(admin, PICK, "x", "t7", "", now, 10)
    assert "queue_ready" in claim.text
    assert "Seq Scan" not in claim.text
    assert claim.rows_read <= 10
    held = await explain(admin, HELD, now)
    assert "queue_held" in held.text
    assert held.rows_read <= 2000
    assert (await explain(admin, RUNNING, "x", 50)).rows_read <= 50
    await admin.close()
    async with open_bench(database_url) as bench:
        before = await buffers(database_url)
        await bench.reap()
        assert await bench.claim(limit=0) == []
        assert await buffers(database_url) - before < 60_000


LIVE_TASKS = """
INSERT INTO tasks (tenant_id, task_id, agent_id, context_id, fair_key, priority, state, last_seq, status_at, created_at,
  created_by, on_busy, max_attempts, backoff_seconds, max_backoff_seconds, lease_seconds, cancel_grace_seconds)
SELECT 't' || 1 + n % 3, gen_random_uuid(), 'x', 'c', '', 5, 1 + n / 3 % 3, 1, now() - n * interval '1 s', now(),
  'u', '', 1, 0, 0, 30, 3 FROM generate_series(1, 30000) n;
INSERT INTO queue (tenant_id, task_id, agent_id, fair_key, priority, queued_at, run_at, fence, lease_seconds)
SELECT tenant_id, task_id, 'x', '', 5, now(), now(), 0, 30 FROM tasks WHERE state < 3;
ANALYZE tasks;
"""
REPAIR_PAGE = """
SELECT s.*, (SELECT true FROM queue q WHERE q.tenant_id = $1 AND q.task_id = s.task_id LIMIT 1) AS queued
  FROM (SELECT task_id, status_at FROM tasks WHERE tenant_id = $1 AND state = $2
           AND status_at >= $3 AND (status_at > $3 OR task_id < 'ffffffff-ffff-ffff-ffff-ffffffffffff')
           AND status_at <= $3 + interval '1 hour'
         ORDER BY status_at, task_id DESC LIMIT $4) s"""


async def test_a_page_of_the_repair_reads_no_more_than_the_page(database_url: str) -> None:
    admin = await asyncpg.connect(database_url)
    await admin.execute("ALTER TABLE queue SET (autovacuum_enabled = false)")
    await admin.execute(LIVE_TASKS)
    await admin.execute("SET plan_cache_mode = force_generic_plan")
    after = await admin.fetchval("SELECT now() - interval '5 hours'")
    page = await explain(admin, REPAIR_PAGE, "t1", 2, after, 50)
    await admin.close()
    assert "tasks_by_state" in page.text
    assert "queue_pkey" in page.text
    assert "Seq Scan" not in page.text
    assert page.rows_read <= 50


class Plan:
    """An executed plan: its text, and how many rows its scans touched, those filtered out included."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.text = json.dumps(plan)
        self.rows_read = max(self._touched(plan))

    def _touched(self, node: dict[str, Any]) -> list[int]:
        own = int(node["Actual Rows"]) + int(node.get("Rows Removed by Filter", 0))
        return [own, *(count for child in node.get("Plans", ()) for count in self._touched(child))]


async def explain(connection: asyncpg.Connection, sql: str, *args: object) -> Plan:
    types = ", ".join({str: "text", type(None): "text", int: "int"}.get(type(arg), "timestamptz") for arg in args)
    await connection.execute(f"DEALLOCATE ALL; PREPARE asked({types}) AS {sql}")
    values = ", ".join("NULL" if arg is None else str(arg) if isinstance(arg, int) else f"'{arg}'" for arg in args)
    text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked({values})")
    return Plan(json.loads(text)[0]["Plan"])


async def buffers(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval(
            "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
        ))  # fmt: skip
    finally:
        await connection.close()
