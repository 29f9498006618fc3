"""Starts the broker and its HTTP worker for a comparison. Called by ``lifecycles.py``."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx

from app.embedded import EmbeddedPostgres
from tests.bench.processes import ROOT, free_port, running
from tests.bench.scenario import AGENT
from tests.bench.sides import Settings, Side, query

DATABASE = "broker"
CARD = {
    "name": "lifecycle", "description": "The lifecycle of the benchmark", "version": "1",
    "capabilities": {"streaming": True}, "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "lifecycle", "name": "lifecycle", "description": "One lifecycle", "tags": ["bench"]}],
}  # fmt: skip


@asynccontextmanager
async def started(postgres: EmbeddedPostgres, settings: Settings) -> AsyncGenerator[Side]:
    """One broker process and one worker process on a database of their own, ended afterwards."""
    await query(postgres.dsn(), f"CREATE DATABASE {DATABASE}")
    port = free_port()
    environment = {
        "WAYSTATION_DATABASE_URL": postgres.dsn(DATABASE),
        "WAYSTATION_PORT": str(port),
        "WAYSTATION_POOL_SIZE": str(settings.pool_size),
        "WAYSTATION_AUTH_MODE": "dev",
        "WAYSTATION_DEV_SECRET": secrets.token_hex(32),
        "WAYSTATION_LOG_LEVEL": "warning",
    }
    _command("migrate", environment=environment)
    with running([sys.executable, "-m", "app", "serve"], environment, port) as server:
        worker = _token(environment, "--scope", "worker:lease agents:admin agents:read", "--agents", AGENT)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as http:
            answer = await http.put(
                f"/v1/agents/{AGENT}", json={"card": CARD}, headers={"Authorization": f"Bearer {worker}"}
            )
            answer.raise_for_status()
        order = {"port": port, "token": worker, "agent": AGENT, "concurrency": settings.worker_concurrency}
        with running([sys.executable, "-m", "tests.bench.worker", json.dumps(order)]) as worker_pid:
            client = _token(environment, "--scope", "tasks:read tasks:write tasks:cancel")
            about = (
                f"auth and metrics on, 1 HTTP worker process ({settings.worker_concurrency} tasks), a call per event"
            )
            yield Side("broker", port, f"/agents/{AGENT}/rpc", client, about, (server, worker_pid))


def _token(environment: dict[str, str], *options: str) -> str:
    return _command("token", "mint", "--tenant", "bench", "--sub", "bench", *options, environment=environment)


def _command(*arguments: str, environment: dict[str, str]) -> str:
    """The output of one command of the CLI. Raises RuntimeError with what it printed when it fails."""
    result = subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environment},
    )  # fmt: skip
    if result.returncode != 0:
        raise RuntimeError(f"waystation {' '.join(arguments)} failed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout.strip()
