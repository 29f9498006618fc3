"""The events' partitions, made ahead by the tables' owner, never by the application's role.

Called by ``migrate`` and by maintenance on DIRECT_DATABASE_URL.
"""

from typing import LiteralString

import asyncpg

MONTHS_AHEAD = 3

ENSURE: LiteralString = "SELECT events_partitions_ensure((clock_timestamp() - interval '1 day')::date, $1)"
ALIVE: LiteralString = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass"


async def ensure_partitions(dsn: str) -> int:
    """Make this month's partition and the next three where they are missing; how many were made.

    Raises OSError or asyncpg's errors (also when the login is not the tables' owner).
    """
    connection = await asyncpg.connect(dsn, timeout=5, command_timeout=10)
    try:
        await connection.execute("SET lock_timeout = '2s'")
        return int(await connection.fetchval(ENSURE, MONTHS_AHEAD + 1) or 0)
    finally:
        await connection.close()
