"""Bringing the schema to head, and telling whether it is. Called by the CLI, by readiness and by the tests.

A revision is named ``NNNN_pre`` (expand: the code of one release before still runs on it) or ``NNNN_post`` (contract).
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

from app.ledger import functions
from app.ledger.partitions import ensure_partitions

if TYPE_CHECKING:
    from alembic.config import Config

_HERE = Path(__file__).parent
MIGRATIONS = next(path for path in (_HERE.parent / "migrations", _HERE.parents[1] / "migrations") if path.is_dir())
"""Inside the package in a wheel, beside it in a checkout."""


def run_script(bind: Any, script: str) -> None:
    """Run several statements at once inside a migration's transaction, as they stand (no bind markers).

    ``bind`` is the migration's SQLAlchemy connection over asyncpg, whose prepared statements take one command only.
    """

    async def execute(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        await connection.execute(script)

    bind.connection.dbapi_connection.run_async(execute)


def alembic_config(dsn: str) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["dsn"] = dsn
    return config


async def migrate(dsn: str) -> None:
    """Bring tables and functions to those of this build; safe to run from several processes at once (they take turns).
    Idempotent."""
    from alembic import command  # with SQLAlchemy a second of CPU, which a broker's start does not need

    await asyncio.to_thread(command.upgrade, alembic_config(dsn), "head")
    await functions.install(dsn)
    await ensure_partitions(dsn)


def revisions() -> list[str]:
    """All revisions of this release, oldest first; read off the files' names (``NNNN_pre_what.py``)."""
    names = sorted(path.stem for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))
    return ["_".join(name.split("_", 2)[:2]) for name in names]


async def check(dsn: str) -> str | None:
    """None when this code runs on the schema, else one line that says what is wrong and which command helps.

    Raises OSError or asyncpg's errors when the database cannot be reached.
    """
    connection = await asyncpg.connect(dsn, timeout=5)
    try:
        found = await connection.fetchval("SELECT version_num FROM alembic_version")
    except asyncpg.UndefinedTableError:
        found = None
    finally:
        await connection.close()
    return _judge(None if found is None else str(found))


def _judge(found: str | None) -> str | None:
    known = revisions()
    ours = known[-1]
    if found is None:
        return "the database has no schema yet: run `waystation migrate`"
    if found == ours:
        return None
    if found in known:
        return f"the schema is at {found}, this release needs {ours}: run `waystation migrate`"
    if found > ours and found.endswith("_pre"):
        return None  # one release ahead, expanded only: this code still runs (a rolling deploy)
    return f"the schema is at {found}, newer than this release ({ours}): run a newer release"
