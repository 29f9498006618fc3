"""The tables that SQLAlchemy declares and those that the migrations make are the same (``alembic check``)."""

import asyncio

from alembic import command

from app.ledger.migrations import alembic_config


async def test_migrated_schema_is_the_declared_one(database_url: str) -> None:
    await asyncio.to_thread(command.check, alembic_config(database_url))
