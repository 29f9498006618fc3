"""Builds the application and runs it. Called by ``waystation serve`` and by tests.

``create_app`` makes the parts and starts and stops them in one lifespan; ``serve`` puts uvicorn around it. Start: pool,
wake-ups, directory, doors, loops. Stop (reliability.md, Shutdown): not ready, no new leases, streams and waits end,
requests finish; then the loops, the wake-ups and the pool.
"""

import asyncio
import functools
import gc
import importlib.metadata
import logging
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI

from app import metrics
from app.auth.card_security import card_security
from app.auth.handles import Handles
from app.auth.keys import KeyStore
from app.auth.tokens import TokenVerifier
from app.auth.vault import Vault
from app.clock import system_clock
from app.execution.leasing import Leasing
from app.execution.session import Sessions
from app.ledger import migrations
from app.ledger.directory import AgentDirectory
from app.ledger.pool import Database
from app.ledger.wakeups import DELIVERIES_KEY, Wakeups
from app.logs import configure_logging
from app.loops import Loop
from app.maintenance.forgotten import Forgotten
from app.maintenance.gauges import QueueGauges
from app.maintenance.orphans import Orphans
from app.maintenance.outbox import Outbox
from app.maintenance.partitions import Partitions
from app.maintenance.pulse import Pulse
from app.maintenance.readiness import Readiness
from app.maintenance.reaper import Reaper
from app.maintenance.repair import Repair
from app.net.egress import Egress, EgressPolicy
from app.operations.deps import Operations
from app.operations.served_cards import ServedCards
from app.settings import Settings
from app.transports import routes
from app.transports.dispatch import Dispatcher
from app.transports.endpoints import mount_endpoints
from app.transports.gateway import Gateway
from app.transports.http_protocol import AddressLimit, GuardedHttp
from app.transports.native import agents, docs
from app.transports.native.deliveries import DeliveryRoutes
from app.transports.native.health import HealthRoutes
from app.transports.native.workers import WorkerRoutes
from app.webhooks.notify import Notifier
from app.webhooks.sender import Sender
from app.webhooks.trial import Trials

if TYPE_CHECKING:
    from app.transports.grpc.server import GrpcServer

log = logging.getLogger("waystation")

KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep idle connections, so that it is they who close them."""
REQUEST_GRACE_SECONDS = 20
CLAIM_POLL_SECONDS = 1.0
BACKLOG = 2048
DESCRIPTION = "A standalone, durable task broker for A2A (Agent2Agent) agents."


class Broker:
    """The parts of one process. ``open`` starts them in order, ``close`` ends them in reverse."""

    def __init__(self, settings: Settings) -> None:
        """Raises ValueError for settings that cannot work."""
        if not settings.database_url:
            raise ValueError("DATABASE_URL is required")
        self.settings = settings
        self.dsn = settings.database_url
        self.direct_dsn = settings.direct_database_url or settings.database_url
        self.handles = Handles(settings.secret_keys())
        self.vault = Vault(settings.secret_keys())
        self.egress = Egress(EgressPolicy.of(settings))
        self.cards = ServedCards(settings.secret_keys(), card_security(settings))
        self.keys = KeyStore(settings.issuers if settings.auth_mode == "oidc" else ())
        self.verifier = TokenVerifier(settings, self.keys, system_clock, _count_refusal)
        self.grpc = _grpc_server(settings)
        self._loops: list[Loop] = []
        self._accepting = False

    async def open(self, app: FastAPI) -> None:
        """Start everything and mount the doors; PostgreSQL may be away meanwhile, then readiness says so."""
        settings = self.settings
        self.db = await Database.connect(
            self.dsn, size=settings.pool_size, pooler=settings.direct_database_url is not None
        )
        self.wakeups = Wakeups(self.direct_dsn)
        await self.wakeups.start()
        self.db.on_deliveries = functools.partial(self.wakeups.bump, DELIVERIES_KEY)
        self.directory = AgentDirectory(self.db, self.wakeups)
        self.operations = Operations(
            self.db,
            self.wakeups,
            self.directory,
            self.handles,
            self.cards,
            blocking_wait_seconds=settings.blocking_wait_seconds,
            poll_seconds=settings.poll_seconds,
            egress=self.egress,
            vault=self.vault,
        )
        poll = min(settings.poll_seconds, CLAIM_POLL_SECONDS)
        self.leasing = Leasing(self.db, self.wakeups, self.directory, self.handles, poll_seconds=poll)
        self.sessions = Sessions(
            self.db, self.wakeups, self.directory, self.handles, poll_seconds=settings.poll_seconds
        )
        self.notifier = Notifier(self.db, self.egress, self.vault)
        self.sender = Sender(self.db, self.wakeups, self.notifier, poll_seconds=poll)
        self.pulse = Pulse(self.db, self.wakeups, lambda: migrations.check(self.direct_dsn))
        self.readiness = Readiness(self.pulse, self.keys.missing)
        self._loops = [
            self.pulse,
            self.readiness,
            Reaper(self.db, self.wakeups, self.pulse),
            Partitions(self.direct_dsn),
            Orphans(self.db, self.wakeups),
            Forgotten(self.db, self.wakeups),
            Repair(self.db, self.wakeups),
            Outbox(self.db),
            self.sender,
            self.operations.floor,
        ]
        gateway = Gateway(settings, self.verifier, self.operations, self.grpc.port if self.grpc else None)
        self._mount(app, gateway)
        for loop in self._loops:
            loop.start()
        if self.grpc:
            await self.grpc.start(gateway, self.readiness.problems)
        self._accepting = True

    def _mount(self, app: FastAPI, gateway: Gateway) -> None:
        mount_endpoints(app, gateway, HealthRoutes(self.readiness, QueueGauges(self.db)).endpoints())
        mount_endpoints(app, gateway, docs.ENDPOINTS)
        mount_endpoints(app, gateway, WorkerRoutes(self.leasing, self.sessions).endpoints())
        mount_endpoints(app, gateway, agents.ENDPOINTS)
        mount_endpoints(app, gateway, DeliveryRoutes(Trials(self.db, self.notifier)).endpoints())
        routes.mount(app, gateway)

    def begin_drain(self) -> None:
        """Not ready, no new leases; streams and waiting calls end soon. Idempotent."""
        if self._accepting:
            self._accepting = False
            self.readiness.drain()
            self.leasing.drain()
            self.sessions.drain()
            self.sender.drain()
            self.operations.begin_drain()
            if self.grpc:
                self.grpc.begin_drain(REQUEST_GRACE_SECONDS)

    async def close(self) -> None:
        self.begin_drain()
        if self.grpc:
            await self.grpc.stop()
        await self.leasing.stop()
        for loop in reversed(self._loops):
            await loop.stop()
        self.directory.close()
        await self.wakeups.stop()
        await self.keys.aclose()
        await self.egress.aclose()
        await self.db.close()


def create_app(settings: Settings) -> FastAPI:
    """The whole application; ``app.state.broker`` has its parts. Raises ValueError for settings that cannot work."""
    broker = Broker(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        await broker.open(app)
        try:
            yield
        finally:
            await broker.close()

    app = FastAPI(
        title="Waystation",
        version=importlib.metadata.version("waystation"),
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours is app.metrics
    )
    app.state.broker = broker
    # every endpoint answers its own errors, so FastAPI's stack of middlewares would only be passed through
    app.middleware_stack = Dispatcher(app.router)
    return app


async def serve(settings: Settings) -> int:
    """Run one replica until SIGTERM, SIGINT or cancellation, then stop in good order; the exit code.

    A second SIGINT does not wait any longer. Raises ValueError for settings that cannot work.
    """
    configure_logging(settings.log_level, settings.log_format)
    try:
        app = create_app(settings)
    except OSError as error:  # the gRPC port
        log.error("%s", error)
        return 1
    _collect_less_often()
    try:
        listener = _listen(settings.host, settings.port)
    except OSError as error:
        reason = f"{error.strerror or error}; is a broker or a demo running there? --port chooses another"
        log.error("cannot listen on %s port %d: %s", settings.host, settings.port, reason)
        return 1
    limit = AddressLimit(settings.trusted_proxies)
    config = uvicorn.Config(
        app,
        http=functools.partial(GuardedHttp, limit=limit),  # pyright: ignore[reportArgumentType] - any factory will do
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=REQUEST_GRACE_SECONDS,
    )
    server = _Server(config, app.state.broker)
    host, port = listener.getsockname()[:2]
    log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
    if grpc := app.state.broker.grpc:
        log.info("listening for gRPC on %s", grpc.address)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.stop()
        await serving
        raise
    return 0


class _Server(uvicorn.Server):
    """uvicorn with our order of stopping, and without its habit of raising the signal again afterwards."""

    def __init__(self, config: uvicorn.Config, broker: Broker) -> None:
        super().__init__(config)
        self._broker = broker

    def stop(self) -> None:
        """Begin to stop: what waits is asked to end at once, then connections are closed as they become idle."""
        self.should_exit = True
        self._broker.begin_drain()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # they stay in place: a second signal must not cut what the caller does after the server's end
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        yield

    def _interrupt(self) -> None:
        self.force_exit = self.should_exit
        self.stop()


def _grpc_server(settings: Settings) -> "GrpcServer | None":
    """The gRPC door with its port taken, where GRPC_PORT is set. Raises OSError; ValueError without the extra."""
    if settings.grpc_port is None:
        return None
    try:
        from app.transports.grpc.server import GrpcServer
    except ModuleNotFoundError as error:
        text = f"WAYSTATION_GRPC_PORT needs an extra: {sys.executable} -m pip install 'waystation[grpc]'"
        raise ValueError(text) from error
    return GrpcServer(settings)


def _collect_less_often() -> None:
    """The garbage collector stops all threads. Python's own thresholds make it go through every object again and again
    while a large body becomes a million new ones, which is most of the time that takes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    dual = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=dual)


def _count_refusal(reason: str) -> None:
    metrics.AUTH_FAILURES.labels(reason).inc()
