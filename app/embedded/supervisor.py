"""Starts, watches and stops the embedded PostgreSQL. Called by ``waystation serve`` and ``demo``, and by the tests.

    postgres = EmbeddedPostgres(data_dir)
    dsn = await postgres.start()      # cold about 1 s, warm about 0.1 s
    …                                 # a server that dies is started again on the same port: the DSN stays true
    await postgres.stop()

It is for one machine and for trying things out, and says so in the log. There is no Unix socket: the server listens on
127.0.0.1 only, and the data directory may be as deep as it likes.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from app.embedded.account import choose_account, reachable_binaries, reachable_home
from app.embedded.binaries import find_binaries
from app.embedded.cluster import DATABASE, SUPERUSER, Cluster, lock
from app.embedded.errors import EmbeddedPostgresError
from app.loops import Loop, LoopConfig

logger = logging.getLogger(__name__)

START_SECONDS = 300  # recovery after a crash replays the log
STOP_SECONDS = 30
START_ATTEMPTS = 5
WATCH = LoopConfig(interval=0.1, jitter=0)


class EmbeddedPostgres:
    """A PostgreSQL server on ``data_dir``, which is made when missing; ``settings`` are added to the server's own.

    Errors are EmbeddedPostgresError, each one line that says what to do. ``start`` must be called on a thread that
    lives as long as the server, since the server ends with it (launch.py): the event loop's does.
    """

    def __init__(self, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir.absolute()
        self.settings = dict(settings or {})
        self.port = 0
        self._cluster: Cluster | None = None
        self._lock: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: _Watch | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id while it is meant to live."""
        return self._process.pid if self._process else None

    def dsn(self, database: str = DATABASE) -> str:
        """The superuser's ``postgresql://`` URL of one database."""
        return f"postgresql://{SUPERUSER}:{self._require().password()}@127.0.0.1:{self.port}/{database}"

    @property
    def binaries_directory(self) -> Path:
        """Where the programs in use are."""
        return self._require().binaries.directory

    async def start(self) -> str:
        """Start the server and its watch; the DSN of the database ``waystation`` when it accepts connections.

        A directory that an earlier process left behind is recovered first; one in use by a living process is refused.
        """
        account = choose_account()
        binaries = reachable_binaries(find_binaries(), account)
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self.data_dir)
            self._cluster = Cluster(reachable_home(self.data_dir, account), account, binaries)
            self._cluster.create()
            await asyncio.to_thread(self._cluster.take_over)
            await self._start_server()
        except BaseException as error:
            await self.stop()
            if isinstance(error, OSError):
                raise EmbeddedPostgresError(f"cannot use {self.data_dir}: {error.strerror}") from None
            raise
        self._watch = _Watch(self)
        self._watch.start()
        logger.warning(
            "embedded PostgreSQL %d (%s) in %s: single node, not for production",
            binaries.major, binaries.source, self._cluster.home,
        )  # fmt: skip
        return self.dsn()

    async def stop(self) -> None:
        """Stop the server (fast shutdown, then by force) and free the directory. Does nothing when it is stopped."""
        await self.suspend_watch()
        await self._end_server()
        self._process = None
        self.port = 0
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def suspend_watch(self) -> None:
        """Stop watching: a server that dies stays down until ``run_once``."""
        if self._watch is not None:
            await self._watch.stop()
            self._watch = None

    def has_ended(self) -> bool:
        """Whether the server has been started and is not there any more."""
        return self._process is not None and self._process.poll() is not None

    async def run_once(self) -> bool:
        """Start the server again if it has died; true when it did. The watch calls this; tests may."""
        if self._process is None or self._process.poll() is None:
            return False
        logger.error("embedded PostgreSQL ended (status %s); starting it again", self._process.returncode)
        await asyncio.to_thread(self._require().take_over)
        await self._start_server()
        return True

    async def _start_server(self) -> None:
        """Try a few times: the port may be taken meanwhile, or the dead server's children not be gone yet."""
        told = self.port != 0
        for attempt in range(1, START_ATTEMPTS + 1):
            self.port = self.port or _free_port()
            self._process = self._spawn()
            if await self._becomes_ready(self._process):
                return
            await self._end_server()
            if not told:
                self.port = 0  # nobody knows this port yet
            await asyncio.sleep(0.1 * attempt)
        raise EmbeddedPostgresError(f"PostgreSQL does not start: {self._require().tail()}")

    def _spawn(self) -> "subprocess.Popen[bytes]":
        cluster = self._require()
        settings = {
            "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": "",
            "log_destination": "stderr", "logging_collector": "off", "timezone": "UTC", "log_timezone": "UTC",
        } | self.settings  # fmt: skip
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with cluster.open_log() as log:
            return cluster.spawn("postgres", "-D", str(cluster.data), *options, stdin=subprocess.DEVNULL, output=log)

    async def _becomes_ready(self, process: "subprocess.Popen[bytes]") -> bool:
        cluster = self._require()
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while process.poll() is None and asyncio.get_running_loop().time() < deadline:
            ours = cluster.recorded_pid() == process.pid and cluster.ready_port() == self.port
            if ours and await asyncio.to_thread(cluster.accepts, self.port):
                return True
            await asyncio.sleep(0.01)
        return False

    async def _end_server(self) -> None:
        if (process := self._process) is None:
            return
        for step in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if process.poll() is None:
                process.send_signal(step)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(process.wait, STOP_SECONDS)

    def _require(self) -> Cluster:
        if self._cluster is None:
            raise EmbeddedPostgresError("the embedded PostgreSQL has not been started")
        return self._cluster


class _Watch(Loop):
    """Keeps the server alive: a dead one is started again within about 0.3 s."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        super().__init__("embedded-postgres", WATCH)
        self._postgres = postgres

    async def run_once(self) -> bool:
        await self._postgres.run_once()
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
