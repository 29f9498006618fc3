"""The test run's own PostgreSQL: one server per run, one migrated template, one database per test.

Called by tests/conftest.py. With xdist the controller starts the server and the workers find its address in the
environment. The server is the product's own embedded one, so nothing is left running when pytest is killed.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from app.embedded import EmbeddedPostgres

T = TypeVar("T")

DSN_VARIABLE = "WAYSTATION_TEST_POSTGRES"
TEMPLATE = "waystation_template"
TEMPLATE_LOCK = 7_020_301
PREFIX = "waystation-test-"
SETTINGS = {
    "max_connections": "300",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
    "max_wal_size": "4GB",
    "log_min_messages": "fatal",
}


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from a fixture without touching the event loop of the test."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)


class OwnPostgres:
    """A server of one test (or of the whole run) in a temporary directory, made by ``start``, removed by ``stop``."""

    def __init__(self) -> None:
        _remove_leftovers()
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.directory.chmod(0o711)  # as root, PostgreSQL's user must pass
        self._server = EmbeddedPostgres(self.directory, SETTINGS)

    async def start(self) -> None:
        await self._server.start()

    def dsn(self, database: str = "postgres") -> str:
        """``postgresql://user:password@127.0.0.1:port/database`` of the superuser."""
        return self._server.dsn(database)

    @property
    def bin(self) -> Path:
        """The directory of psql, pg_dump, pgbench and the others."""
        return self._server.binaries_directory

    async def restart_immediate(self) -> None:
        """Immediate shutdown (as a crash: connections cut, recovery at the start), then up again on the same port."""
        await self.kill(signal.SIGQUIT)
        await self._server.run_once()

    async def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the server and keep it down until ``run_once``; returns when it is gone."""
        await self._server.suspend_watch()
        if (pid := self._server.pid) is not None:
            os.kill(pid, how)
            while not self._server.has_ended():
                await asyncio.sleep(0.01)

    async def resume(self) -> None:
        """Start the server again after ``kill``."""
        await self._server.run_once()

    async def stop(self) -> None:
        await self._server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class SharedPostgres:
    """The run's server as tests see it, in the controller's process or in a worker: only its address."""

    def __init__(self, dsn: str, bin_directory: Path) -> None:
        self._dsn = urlsplit(dsn)
        self.bin = bin_directory

    def dsn(self, database: str = "postgres") -> str:
        return self._dsn._replace(path=f"/{database}").geturl()

    async def create_database(self, template: str | None = None) -> str:
        """A new database (a clone of ``template``); its name."""
        name = f"test_{uuid4().hex}"
        source = f'TEMPLATE "{template}"' if template else "TEMPLATE template0"
        await self._execute(f'CREATE DATABASE "{name}" {source}')
        return name

    async def drop_database(self, name: str) -> None:
        await self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def template(self) -> str:
        """The name of the migrated template, made by the first worker that asks; the others wait for it."""
        admin = await asyncpg.connect(self.dsn())
        try:
            await admin.execute("SELECT pg_advisory_lock($1)", TEMPLATE_LOCK)
            if not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", TEMPLATE):
                name = await self.create_database()
                try:
                    await _migrate(self.dsn(name))
                except BaseException:
                    await self.drop_database(name)
                    raise
                await admin.execute(f'ALTER DATABASE "{name}" RENAME TO "{TEMPLATE}"')
        finally:
            await admin.close()
        return TEMPLATE

    async def _execute(self, statement: str) -> None:
        admin = await asyncpg.connect(self.dsn())
        try:
            await admin.execute(statement)
        finally:
            await admin.close()


async def _migrate(dsn: str) -> None:
    from app.ledger.migrations import migrate

    await migrate(dsn)


def _remove_leftovers() -> None:
    """Remove directories of test runs that were killed: those whose lock nobody holds."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            with (directory / "postgres.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue
