"""The pool: how the rest of the ledger talks to PostgreSQL, and where the driver's errors become ours.

Row level security is the second line of tenant isolation: the pool runs as ``waystation_app`` (when its login may), and
every transaction sees only the tenants it has named. Hot operations are one SQL function call that names its tenant;
everything else goes through ``Database.tenant``.
"""

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import LiteralString, Self

import asyncpg

from app import metrics
from app.errors import Unavailable

APP_ROLE = "waystation_app"
ACQUIRE_SECONDS = 2.0
COMMAND_SECONDS = 5.0
RETRIES = 5
SYNC_CANCELED = "canceling wait for synchronous replication"
DELIVERIES_DUE = "deliveries are due"
_TENANT = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_RETRYABLE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server has said why it ends this connection, and has not closed it yet
    asyncpg.OperatorInterventionError,  # shutdown, start-up, a canceled query, a dropped database
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.PostgresSystemError,  # an I/O error
    asyncpg.InvalidAuthorizationSpecificationError,  # while a password is changed, or a database restored
    asyncpg.InvalidCatalogNameError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.UndefinedFunctionError,  # for a moment, while another build installs its functions
    asyncpg.CheckViolationError,  # "no partition of relation events": made ahead by maintenance, told as an outage
    OSError,
    TimeoutError,
)

Record = asyncpg.Record


class SqlRefusalError(Exception):
    """A ledger function refused its input and rolled back (SQLSTATE class WS). ``code`` is the state, ``detail`` its
    DETAIL text."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


def unavailable() -> Unavailable:
    """The answer while PostgreSQL is away or an outcome is unknown; jittered so that clients do not return at once."""
    return Unavailable(retry_after=random.uniform(1, 5))  # noqa: S311 - jitter, not a secret


class _PoolConnection(asyncpg.Connection):
    """Leaves no session state behind (settings are SET LOCAL, LISTEN has a connection of its own), so nothing is reset
    on release: that would be a round trip for every operation. An open transaction is still rolled back."""

    def get_reset_query(self) -> str:
        return ""


class Connection:
    """A pooled connection inside one transaction that sees the named tenants only."""

    def __init__(self, raw: "asyncpg.pool.PoolConnectionProxy[Record]") -> None:
        self._raw = raw

    async def fetch(self, sql: LiteralString, *args: object) -> list[Record]:
        return await self._raw.fetch(sql, *args)

    async def fetchrow(self, sql: LiteralString, *args: object) -> Record | None:
        return await self._raw.fetchrow(sql, *args)

    async def execute(self, sql: LiteralString, *args: object) -> None:
        await self._raw.execute(sql, *args)


class Database:
    """A pool of connections to the ledger. All methods raise Unavailable while PostgreSQL is away."""

    def __init__(self, pool: "asyncpg.Pool[Record]", dsn: str) -> None:
        self._pool = pool
        self.dsn = dsn
        self.on_deliveries: Callable[[], None] = lambda: None
        """Called after each transaction here that made deliveries due (55_outbox.sql); a hint, which may be lost."""

    @classmethod
    async def connect(cls, dsn: str, *, size: int = 16, pooler: bool = False) -> Self:
        """Open the pool (lazily: it is usable while PostgreSQL starts, and answers Unavailable until it has).

        ``size`` is the greatest number of connections; ``pooler``: the DSN leads through one that gives each
        transaction another server connection (PgBouncer), where prepared statements cannot be kept.
        """
        server_settings = {
            "application_name": "waystation",
            "jit": "off",
            "plan_cache_mode": "force_generic_plan",  # prunes the partitions of events by task id (measured: 5-9 x)
            "client_min_messages": "notice",
        }
        if await _may_use_app_role(dsn):
            server_settings["role"] = APP_ROLE  # as a startup parameter it survives RESET ALL and DISCARD ALL
        pool = asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=size,
            command_timeout=COMMAND_SECONDS,
            timeout=ACQUIRE_SECONDS,
            server_settings=server_settings,
            connection_class=_PoolConnection,
            statement_cache_size=0 if pooler else 100,
            max_inactive_connection_lifetime=60,
        )
        await pool
        return cls(pool, dsn)

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), COMMAND_SECONDS)
        except TimeoutError:
            self._pool.terminate()

    async def ping(self) -> float:
        """Seconds of one round trip."""
        start = time.monotonic()
        await self.fetch("SELECT 1")
        return time.monotonic() - start

    async def fetch(self, sql: LiteralString, *args: object) -> list[Record]:
        """Run one statement as a transaction of its own; retried when the server chose it as a deadlock's victim."""
        for left in reversed(range(RETRIES)):
            async with self._connection() as connection:
                try:
                    return await connection.fetch(sql, *args)
                except _RETRYABLE as error:
                    if not left:
                        raise unavailable() from error
            await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311 - jitter, not a secret
        raise AssertionError("unreachable")

    async def fetchrow(self, sql: LiteralString, *args: object) -> Record | None:
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def call(self, sql: LiteralString, *args: object) -> Record:
        """A function that always answers one row."""
        return (await self.fetch(sql, *args))[0]

    @asynccontextmanager
    async def tenant(self, *tenants: str, snapshot: bool = False) -> AsyncGenerator[Connection]:
        """A transaction that sees these tenants. Plans are made for its own parameters (lists want that).

        With ``snapshot`` it only reads, and all its statements see the same moment.
        """
        if not all(_TENANT.fullmatch(tenant) for tenant in tenants):
            raise ValueError("not a tenant")
        kind = " ISOLATION LEVEL REPEATABLE READ READ ONLY" if snapshot else ""
        begin = f"BEGIN{kind}; SET LOCAL app.tenants = ',{','.join(tenants)},'; SET LOCAL plan_cache_mode = auto"
        async with self._connection() as connection:
            await connection.execute(begin)
            try:
                yield Connection(connection)
            except BaseException:
                if not connection.is_closed():
                    await connection.execute("ROLLBACK")
                raise
            await connection.execute("COMMIT")

    @asynccontextmanager
    async def _connection(self) -> "AsyncGenerator[asyncpg.pool.PoolConnectionProxy[Record]]":
        start = time.monotonic()
        try:
            async with self._pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
                metrics.POOL_WAIT_SECONDS.observe(time.monotonic() - start)
                with _terminated_if_doomed(connection), self._heard(connection):
                    yield connection
        except _RETRYABLE as error:
            raise unavailable() from error
        except asyncpg.PostgresError as error:
            code = str(error.sqlstate or "")
            if code.startswith("WS"):
                raise SqlRefusalError(code, str(error.detail or "")) from None
            if isinstance(error, _AWAY):
                raise unavailable() from error
            raise
        except _AWAY as error:
            raise unavailable() from error

    @contextmanager
    def _heard(self, connection: "asyncpg.pool.PoolConnectionProxy[Record]") -> Generator[None]:
        """Listens to what the server says beside its answers, and acts on it when the transaction has ended.

        Raises Unavailable when a commit here was not confirmed by its synchronous standby: PostgreSQL then reports
        success and a warning only, but the outcome is unknown (reliability.md, Promises).
        """
        heard: list[str] = []

        def listen(_connection: object, notice: object) -> None:
            heard.append(str(notice))

        connection.add_log_listener(listen)
        try:
            yield
        finally:
            connection.remove_log_listener(listen)
            if any(DELIVERIES_DUE in text for text in heard):
                self.on_deliveries()
        if any(SYNC_CANCELED in text for text in heard):
            raise unavailable()


@contextmanager
def _terminated_if_doomed(connection: "asyncpg.pool.PoolConnectionProxy[Record]") -> Generator[None]:
    """A connection that the server has given up can do nothing more: it must not go back to the pool."""
    try:
        yield
    except asyncpg.InternalClientError:
        connection.terminate()
        raise


async def _may_use_app_role(dsn: str) -> bool:
    """Whether the login is a member of the application role (superusers are). Waits for nothing: a database that is
    away now is asked again by the pool."""
    sql = "SELECT coalesce((SELECT pg_has_role(current_user, oid, 'MEMBER') FROM pg_roles WHERE rolname = $1), false)"
    try:
        connection = await asyncpg.connect(dsn, timeout=ACQUIRE_SECONDS)
    except (*_AWAY, asyncpg.PostgresError):
        return True
    try:
        return bool(await connection.fetchval(sql, APP_ROLE))
    finally:
        await connection.close()
