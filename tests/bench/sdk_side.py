"""Starts the official SDK's server for a comparison. Called by ``lifecycles.py``."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from app.embedded import EmbeddedPostgres
from tests.bench.processes import free_port, running
from tests.bench.sides import Settings, Side, query
from tests.interop.environments import python_environment

REQUIREMENTS = Path(__file__).parent / "requirements-sdk-server.txt"
DATABASE = "sdk"


@asynccontextmanager
async def started(postgres: EmbeddedPostgres, settings: Settings) -> AsyncGenerator[Side]:
    """The SDK's server on a database of its own, ended afterwards."""
    python = python_environment("sdk-server", REQUIREMENTS)
    await query(postgres.dsn(), f"CREATE DATABASE {DATABASE}")
    port = free_port()
    command = [str(python), "-m", "tests.bench.sdk_server", postgres.dsn(DATABASE), str(port), str(settings.pool_size)]
    with running(command, port=port) as pid:
        version = next(line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("a2a-sdk=="))
        about = (
            f"{version}, DefaultRequestHandler, DatabaseTaskStore (postgresql+asyncpg), uvicorn with uvloop, no auth"
        )
        yield Side("sdk", port, "/", "none", about, (pid,))
