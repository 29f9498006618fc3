"""Wake-ups: hints between replicas that a task, a queue or the agents changed. Used by every reader that waits.

A hint carries no data and may be lost or false: readers register first, then read the ledger, then wait, and poll now
and then whatever happens. Local waiters are woken at once; other replicas by one coalesced NOTIFY on the process's one
dedicated connection, never inside a writing transaction (ledger.md, Wake-ups; reliability.md, LISTEN).
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from uuid import UUID

import asyncpg

from app import metrics

log = logging.getLogger("waystation.wakeups")

CHANNEL = "waystation_wakeups"
AGENTS_KEY = "agents"
DELIVERIES_KEY = "deliveries"
"""Bumped after every commit that made a delivery due (``Database.on_deliveries``)."""
COALESCE_SECONDS = 0.015
PING_SECONDS = 5.0
TIMEOUT_SECONDS = 2.0
MAX_BACKOFF_SECONDS = 1.0
CLOSE_SECONDS = 1.0
TOKEN_CHARS = 12
MAX_TOKENS = (7999 - TOKEN_CHARS) // TOKEN_CHARS
"""PostgreSQL takes payloads of less than 8000 bytes: the sender, then one token per key."""
EVERYTHING = "*"

_SQL_NOTIFY = "SELECT pg_notify($1, $2)"
_AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_random = random.SystemRandom()


def task_key(tenant: str, task_id: UUID) -> str:
    """Bumped after every commit that appended to this task."""
    return f"task:{tenant}:{task_id}"


def lease_key(tenant: str, task_id: UUID) -> str:
    """Bumped when the task's lease was given a signal or has ended: what a held heartbeat waits for."""
    return f"lease:{tenant}:{task_id}"


def queue_key(agent_id: str) -> str:
    """Bumped when a task of this agent may have become claimable."""
    return f"queue:{agent_id}"


class Signal:
    """One waiter's flag for the keys it watches."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def take(self) -> bool:
        """Whether a key was bumped since the last look; looking clears it."""
        was_set = self._event.is_set()
        self._event.clear()
        return was_set

    async def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for a bump and clear it; False when there was none."""
        if not self._event.is_set() and timeout > 0:
            try:
                async with asyncio.timeout(timeout):
                    await self._event.wait()
            except TimeoutError:
                return False
        return self.take()


class Wakeups:
    """One per process. Usable before ``start`` and while PostgreSQL is away: then only local waiters are woken at once.

    ``dsn`` must lead to PostgreSQL itself, not to a pooler in transaction mode.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._sender = secrets.token_hex(TOKEN_CHARS // 2)
        self._waiters: dict[str, set[Signal]] = {}
        self._pending: set[str] = set()
        self._overflow = False
        self._work = asyncio.Event()
        self._pong = asyncio.Event()
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.reconnected_at = float("-inf")
        """When (monotonic seconds) the connection was last made after it had been lost."""

    async def start(self) -> None:
        """Connect in the background; returns when connected, or after 2 s when PostgreSQL is away."""
        self._task = asyncio.create_task(self._run_forever(), name="wakeups")
        await self.wait_connected(TIMEOUT_SECONDS)

    async def stop(self) -> None:
        """Send what is pending and close the connection."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def wait_connected(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until hints of other replicas arrive here."""
        try:
            async with asyncio.timeout(timeout):
                await self._connected.wait()
        except TimeoutError:
            return False
        return True

    @contextmanager
    def watch(self, *keys: str) -> Generator[Signal]:
        """Register for bumps of any of ``keys``. Register first, then read the ledger, then wait on the signal."""
        tokens, signal = {_token(key) for key in keys}, Signal()
        for token in tokens:
            self._waiters.setdefault(token, set()).add(signal)
        try:
            yield signal
        finally:
            for token in tokens:
                waiters = self._waiters[token]
                waiters.discard(signal)
                if not waiters:
                    del self._waiters[token]

    def bump(self, key: str) -> None:
        """Call after a commit: wakes local waiters now and other replicas within about 15 ms."""
        token = _token(key)
        self._wake(token)
        if len(self._pending) < MAX_TOKENS:
            self._pending.add(token)
        else:
            self._overflow = True
        self._work.set()

    def bump_all(self) -> None:
        """Wake every local waiter: hints may have been missed."""
        for waiters in self._waiters.values():
            for signal in waiters:
                signal.set()

    def _wake(self, token: str) -> None:
        for signal in self._waiters.get(token, ()):
            signal.set()

    async def _run_forever(self) -> None:
        failures, was_lost = 0, False
        while True:
            try:
                connection = await asyncpg.connect(
                    self._dsn,
                    timeout=TIMEOUT_SECONDS,
                    command_timeout=TIMEOUT_SECONDS,
                    server_settings={"application_name": "waystation-wakeups"},
                )
            except _AWAY as error:
                if failures == 0:
                    log.warning("wake-ups: PostgreSQL is away (%s), readers poll meanwhile", type(error).__name__)
                failures += 1
                pause = min(0.05 * 2 ** min(failures, 8), MAX_BACKOFF_SECONDS)
                await asyncio.sleep(_random.uniform(pause / 2, pause))
                continue
            try:
                failures = 0
                if was_lost:
                    self.reconnected_at = time.monotonic()
                await self._serve(connection)
            except _AWAY as error:
                log.warning("wake-ups: the LISTEN connection was lost (%s), connecting again", type(error).__name__)
                await asyncio.sleep(_random.uniform(0.01, 0.1))
            finally:
                was_lost = True
                self._connected.clear()
                metrics.WAKEUPS_CONNECTED.set(0)
                await _close(connection)

    async def _serve(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Carry hints both ways until the connection dies (raises) or the task is cancelled."""
        connection.add_termination_listener(self._terminated)
        await connection.add_listener(CHANNEL, self._received)
        self._connected.set()
        metrics.WAKEUPS_CONNECTED.set(1)
        self.bump_all()  # whatever happened before LISTEN took effect was not heard
        try:
            next_ping = time.monotonic()
            while True:
                if time.monotonic() >= next_ping:
                    await self._ping(connection)
                    next_ping = time.monotonic() + PING_SECONDS
                await self._flush(connection)
                await self._wait_for_work(next_ping - time.monotonic())
        except asyncio.CancelledError:
            with suppress(*_AWAY):  # a farewell that cannot be sent must not undo the cancellation
                await self._flush(connection)
            raise

    async def _wait_for_work(self, timeout: float) -> None:
        # the pause makes one NOTIFY of all bumps that fall into it; an idle replica's first bump leaves at once
        await asyncio.sleep(COALESCE_SECONDS)
        try:
            async with asyncio.timeout(timeout):
                await self._work.wait()
        except TimeoutError:
            pass

    async def _ping(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """NOTIFY ourselves: a connection that is half open, or whose LISTEN was lost, does not answer."""
        self._pong.clear()
        await connection.execute(_SQL_NOTIFY, CHANNEL, self._sender)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self._pong.wait()

    async def _flush(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        if connection.is_closed():
            raise ConnectionResetError("the LISTEN connection was closed")
        self._work.clear()
        if not self._pending:
            return
        tokens, overflow = self._pending, self._overflow
        self._pending, self._overflow = set(), False
        try:
            await connection.execute(_SQL_NOTIFY, CHANNEL, self._sender + (EVERYTHING if overflow else "".join(tokens)))
        except BaseException:
            # other replicas still have to hear of these
            self._pending |= tokens
            self._overflow |= overflow
            raise

    def _received(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        text = str(payload)
        sender, tokens = text[:TOKEN_CHARS], text[TOKEN_CHARS:]
        if sender == self._sender:
            self._pong.set()
        elif tokens == EVERYTHING:
            self.bump_all()
        else:
            for start in range(0, len(tokens), TOKEN_CHARS):
                self._wake(tokens[start : start + TOKEN_CHARS])

    def _terminated(self, _connection: object) -> None:
        self._work.set()


async def _close(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except _AWAY:
        connection.terminate()


def _token(key: str) -> str:
    """A key in fixed length: many fit into one payload, and payloads name nobody. A collision is one false hint."""
    return blake2b(key.encode(), digest_size=TOKEN_CHARS // 2).hexdigest()
