"""A broker as operators run it: ``python -m app serve`` in a process of its own, killed and started at will.

Called by the fixtures ``broker``, ``broker_pair`` and ``start_broker``. The calls block: an async test whose other
tasks must go on meanwhile uses ``asyncio.to_thread`` for ``terminate`` and ``wait_ready``. ``spawn`` stays on the main
thread: the process ends with the thread that started it, so that nothing outlives a pytest that was killed.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from app.embedded.cluster import LAUNCHER
from tests.support.plain_http import NO_CERTIFICATES
from tests.support.tokens import DEV_SECRET, bearer, mint

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "app")
READY_SECONDS = 60
STOP_SECONDS = 45


class BrokerProcess:
    """One gateway on ``database_url``, on a free port that it keeps over restarts.

    ``program`` is the command line to start, by default this checkout's.
    """

    def __init__(self, database_url: str, log: Path, *, program: Sequence[str] = PROGRAM, **environment: str) -> None:
        self.database_url = database_url
        self.log = log
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self._program = program
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def grpc_target(self) -> str:
        """host:port of the gRPC door of a broker that was given WAYSTATION_GRPC_PORT (0: any), where it last said."""
        return re.findall(r"listening for gRPC on ([\d.]+:\d+)", self.output())[-1]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it is ready; the way back up after ``kill`` and ``terminate`` too."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        assert self._process is None or self._process.poll() is not None, "still alive"
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONUNBUFFERED": "1",
            "WAYSTATION_DATABASE_URL": self.database_url,
            "WAYSTATION_AUTH_MODE": "dev",
            "WAYSTATION_DEV_SECRET": DEV_SECRET,
            "WAYSTATION_POOL_SIZE": "8",
        } | self._environment
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), "-", "-"]
        serve = [*self._program, "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                launcher + serve,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Poll /readyz until it says yes; fail with the log when the process ends or the time is over."""
        assert self._process is not None
        deadline = time.monotonic() + seconds
        with httpx.Client(trust_env=False, timeout=2, verify=NO_CERTIFICATES) as client:
            while time.monotonic() < deadline:
                assert self._process.poll() is None, (
                    f"the broker ended with {self._process.returncode}:\n{self.output()}"
                )
                try:
                    if client.get(f"{self.base_url}/readyz").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(0.02)
        raise AssertionError(f"the broker is not ready after {seconds} s:\n{self.output()}")

    def signal(self, how: signal.Signals) -> None:
        """Send a signal to the broker's process."""
        assert self._process is not None
        self._process.send_signal(how)

    def kill(self) -> None:
        """kill -9; returns when it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def wait_end(self, seconds: float = STOP_SECONDS) -> int:
        """Wait until it has ended; the exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    def terminate(self, seconds: float = STOP_SECONDS) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(seconds)

    def close(self) -> None:
        """End it whatever its state."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def output(self) -> str:
        """What it has written so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def register_agent(self, agent: str, tenant: str = "a", **settings: Any) -> dict[str, Any]:
        """Register or replace a pull agent owned by ``tenant``; ``settings`` are the body's other fields."""
        return register_agent(self.base_url, agent, mint(tenant, "admin", "agents:admin agents:read"), **settings)


def register_agent(base_url: str, agent: str, token: str, **settings: Any) -> dict[str, Any]:
    """PUT /v1/agents/{agent} with a minimal card; the agent as the broker describes it."""
    body = {"card": card(agent)} | settings
    answer = httpx.put(
        f"{base_url}/v1/agents/{agent}", json=body, headers=bearer(token), trust_env=False, verify=NO_CERTIFICATES
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def card(agent: str, **capabilities: bool) -> dict[str, Any]:
    """The minimal card of a streaming agent, with these capabilities besides (or without: ``streaming=False``)."""
    return {
        "name": agent,
        "description": f"The agent {agent} of a test.",
        "version": "1.0.0",
        "capabilities": {"streaming": True} | capabilities,
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "test", "name": "test", "description": "A test's skill.", "tags": ["test"]}],
    }


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
