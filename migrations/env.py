"""Alembic's environment: one connection (asyncpg, by the DSN as asyncpg reads it), one advisory lock, one transaction.

Run through ``app.ledger.migrations`` (``waystation migrate``), or by the alembic command with DATABASE_URL set.
"""

import asyncio
import os

import asyncpg
from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.ledger.schema import metadata

LOCK_KEY = 0x7761797374  # "wayst": one migration at a time, whatever starts it


def include_object(_object: object, name: str | None, kind: str, _reflected: bool, _compare_to: object) -> bool:
    """Partitions are made by maintenance, not declared."""
    return not (kind == "table" and name is not None and name.startswith("events_"))


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, include_object=include_object)
    with context.begin_transaction():
        connection.execute(text("SET LOCAL lock_timeout = '60s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        connection.execute(text("SET LOCAL lock_timeout = '2s'"))
        context.run_migrations()


async def main() -> None:
    dsn = context.config.attributes.get("dsn") or os.environ["DATABASE_URL"]
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn, timeout=10), poolclass=NullPool
    )
    async with engine.connect() as connection:
        await connection.run_sync(run)
        await connection.commit()
    await engine.dispose()


asyncio.run(main())
