"""Looks at a PostgreSQL from outside the pool and reports facts without judging. Called by ``waystation doctor``."""

import asyncio
import time
from dataclasses import dataclass
from typing import LiteralString

import asyncpg

from app.ledger.pool import APP_ROLE

CONNECT_SECONDS = 5
LISTEN_SECONDS = 2
ROUND_TRIPS = 5
CHANNEL = "waystation_probe"

FACTS: LiteralString = """
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_version') AS version_text,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS connections,
       (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections_used,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       pg_is_in_recovery() AS read_only,
       current_user::text AS login,
       login.rolsuper OR login.rolbypassrls AS bypasses,
       coalesce((SELECT pg_has_role(current_user, role.oid, 'MEMBER') AND NOT role.rolsuper AND NOT role.rolbypassrls
                   FROM pg_roles role WHERE role.rolname = $1), false) AS has_app_role
  FROM pg_roles login WHERE login.rolname = current_user
"""
NOW: LiteralString = "SELECT extract(epoch FROM clock_timestamp())::float8 AS now"
NOTIFY: LiteralString = "SELECT pg_notify($1, '')"


class ProbeError(Exception):
    """The database cannot be reached or asked; the text is one line and holds no password."""


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """``version`` as 180006; ``connections`` those not reserved for superusers; ``bypasses``: the login ignores row
    level security; ``has_app_role``: it may become the application role, which does not; ``skew``: database minus local
    clock and ``round_trip`` the median, both in seconds; ``listens``: a NOTIFY was heard."""

    version: int
    version_text: str
    connections: int
    connections_used: int
    fsync: bool
    synchronous_commit: str
    read_only: bool
    login: str
    bypasses: bool
    has_app_role: bool
    skew: float
    round_trip: float
    listens: bool


async def probe(dsn: str) -> DatabaseFacts:
    """Ask one server everything. Raises ProbeError."""
    try:
        connection = await asyncpg.connect(dsn, timeout=CONNECT_SECONDS, command_timeout=CONNECT_SECONDS)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, ValueError) as exc:
        raise ProbeError(_one_line(exc)) from exc
    try:
        row = await connection.fetchrow(FACTS, APP_ROLE)
        assert row is not None, "a role that is logged in has a row"
        skew, round_trip = await _clock(connection)
        return DatabaseFacts(**dict(row), skew=skew, round_trip=round_trip, listens=await _listens(connection))
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as exc:
        raise ProbeError(_one_line(exc)) from exc
    finally:
        connection.terminate()


async def _clock(connection: "asyncpg.Connection[asyncpg.Record]") -> tuple[float, float]:
    """(skew, round trip): the median trip, and the skew measured in the fastest one, whose error is the least."""
    trips: list[tuple[float, float]] = []
    for _ in range(ROUND_TRIPS):
        before = time.time()
        now = float(await connection.fetchval(NOW))
        after = time.time()
        trips.append((after - before, now - (before + after) / 2))
    trips.sort()
    return trips[0][1], trips[ROUND_TRIPS // 2][0]


async def _listens(connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
    heard = asyncio.Event()

    def hear(*_: object) -> None:
        heard.set()

    await connection.add_listener(CHANNEL, hear)
    await connection.execute(NOTIFY, CHANNEL)
    try:
        await asyncio.wait_for(heard.wait(), LISTEN_SECONDS)
    except TimeoutError:
        return False
    return True


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
