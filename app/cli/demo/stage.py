"""Everything the story plays on: database, gateway, worker, registered agent, tokens. Built up, taken down."""

import contextlib
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from app.cli.agents import default_card
from app.cli.broker import Broker
from app.cli.demo.processes import Child
from app.cli.environment import (
    DatabaseSource,
    check_schema,
    load_settings,
    migrate_schema,
    open_database,
)
from app.cli.errors import CliError
from app.cli.identity import CLIENT_SCOPES, DAY, WORKER_SCOPES, mint, state_dir
from app.cli.stopping import finish
from app.settings import Settings

TENANT = "demo"
WORKER = "app.cli.demo.agent:worker"
FAVOURITE_PORT = 8080


class Stage:
    """The running demo. ``url``, ``agent`` and ``token`` are what a client needs."""

    def __init__(self, database_url: str, agent: str, logs: Path) -> None:
        self.agent = agent
        self.restarts = 0
        port, self._port_holder = reserve_port()
        self.url = f"http://127.0.0.1:{port}"
        secret = secrets.token_hex(32)
        self.token = mint(secret, tenant=TENANT, subject="you", scopes=CLIENT_SCOPES, ttl=DAY)
        worker_token = mint(secret, tenant=TENANT, subject="demo-worker", scopes=WORKER_SCOPES, agents=[agent], ttl=DAY)
        outside = {name: value for name, value in os.environ.items() if not name.startswith("WAYSTATION_")}
        outside.pop("DATABASE_URL", None)
        gateway_environment = outside | {
            "WAYSTATION_DATABASE_URL": database_url,
            "WAYSTATION_AUTH_MODE": "dev",
            "WAYSTATION_DEV_SECRET": secret,
        }
        self.gateway = Child("gateway", ["serve", "--port", str(port)], gateway_environment, logs / "gateway.log")
        self.worker = Child(
            "worker",
            ["worker", "run", WORKER],
            outside | {"WAYSTATION_URL": self.url, "WAYSTATION_TOKEN": worker_token, "WAYSTATION_DEMO_AGENT": agent},
            logs / "worker.log",
        )

    def broker(self) -> Broker:
        """A client's connection to the gateway."""
        return Broker(self.url, self.token)

    async def start(self) -> None:
        """Start the gateway, register the agent, start its worker. Raises CliError, with the log of a gateway that does
        not come up."""
        self.gateway.start()
        await self._gateway_answers()
        await self._register()
        self.worker.start()

    async def restart(self) -> None:
        """kill -9 both at once, and start them again; the worker waits for the gateway by itself."""
        self.restarts += 1
        self.gateway.kill()
        self.worker.kill()
        self.gateway.start()
        self.worker.start()
        await self._gateway_answers()

    async def _gateway_answers(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(trust_env=False, timeout=2) as client:

            async def answers() -> bool:
                try:
                    if not (await client.get(f"{self.url}/readyz")).is_success:
                        return False
                    # another broker that has taken the port would not know our token
                    return (await client.get(f"{self.url}/v1/agents", headers=headers)).is_success
                except httpx.TransportError:
                    return False

            await self.gateway.ready(answers)

    async def _register(self) -> None:
        body = {
            "card": default_card("count", "Counts aloud, one number at a time"),
            "cardVisibility": "public",
        }
        async with self.broker() as broker:
            await broker.call("PUT", f"/v1/agents/{self.agent}", body=body, retry=True)

    def log_tail(self) -> tuple[str, ...]:
        """What both processes wrote last."""
        return tuple(f"{child.name}: {line}" for child in (self.gateway, self.worker) for line in child.log_tail())

    async def stop(self, *, unregister: bool) -> None:
        """Stop both processes; in a database that stays, remove the agent first."""
        await self.worker.stop()
        if unregister and self.gateway.running:
            with contextlib.suppress(CliError):
                async with self.broker() as broker:
                    await broker.call("DELETE", f"/v1/agents/{self.agent}", params={"force": "true"})
        await self.gateway.stop()
        self._port_holder.close()


@asynccontextmanager
async def open_stage(describe: Callable[[DatabaseSource], None]) -> AsyncGenerator[Stage]:
    """A stage with its database migrated; nothing runs on it yet. Everything is stopped and removed at the end."""
    home = make_home()
    try:
        settings = load_settings()
        source = choose(settings, home)
        async with open_database(source, settings) as ready:
            if await check_schema(ready):
                await migrate_schema(ready)
            assert ready.database_url is not None, "open_database has set it"
            describe(source)
            throw_away = source.data_dir is not None and source.data_dir.is_relative_to(home)
            stage = Stage(ready.database_url, "demo" if throw_away else f"demo-{secrets.token_hex(3)}", home)
            try:
                yield stage
            finally:
                await finish(stage.stop(unregister=not throw_away))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def make_home() -> Path:
    """A directory for logs and database, open to look into: as root the database runs as another user."""
    home = Path(tempfile.mkdtemp(prefix="waystation-demo-"))
    home.chmod(0o755)
    return home


def choose(settings: Settings, home: Path) -> DatabaseSource:
    """DATABASE_URL when there is one; else an embedded server, kept in DATA_DIR, or thrown away with ``home``."""
    if settings.database_url:
        return DatabaseSource(settings.database_url, None, "DATABASE_URL")
    if settings.data_dir:
        return DatabaseSource(None, state_dir(), "WAYSTATION_DATA_DIR")
    return DatabaseSource(None, home, "the demo")


def reserve_port() -> tuple[int, socket.socket]:
    """8080 when that is free, so that the CLI's default URL fits, else any free port; and a socket bound to it.

    The socket never listens: it keeps the port from other demos, also while the gateway is dead, and lets the gateway
    in, which binds with SO_REUSEADDR. Only Linux has this rule; elsewhere the port is chosen, not kept.
    """
    for port in (FAVOURITE_PORT, 0):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            holder.close()
            continue
        number = int(holder.getsockname()[1])
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform != "linux":
            holder.close()
        return number, holder
    raise CliError("no free port on 127.0.0.1", remedy="end some of the programs that listen there")
