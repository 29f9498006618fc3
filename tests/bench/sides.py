"""What the two sides of a comparison have in common."""

from dataclasses import dataclass, field
from typing import Any, cast

import asyncpg


@dataclass(frozen=True)
class Settings:
    """What both sides are given alike."""

    pool_size: int
    worker_concurrency: int


@dataclass(frozen=True)
class Side:
    """A server under load: where its JSON-RPC door is, and what to print about it."""

    name: str
    port: int
    path: str
    token: str = field(repr=False)
    about: str
    pids: tuple[int, ...]
    """The processes that do the side's work, PostgreSQL apart."""


async def query(dsn: str, statement: str) -> object:
    """Runs one statement on a connection of its own and gives its single value."""
    connection: Any = await cast("Any", asyncpg).connect(dsn)  # it has no types
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
