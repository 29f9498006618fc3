"""The demo's gateway and worker: real processes, killed with -9 and started again. They end with the demo."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import app
from app.cli.errors import CliError
from app.embedded.cluster import LAUNCHER

PACKAGE_ROOT = Path(app.__file__).parents[1]
READY_SECONDS = 30
STOP_SECONDS = 15
POLL_SECONDS = 0.05
LOG_LINES = 8
DOCTOR = "`waystation doctor` looks at this machine"


class Child:
    """One ``python -m app …`` process that may be killed and started anew. Its output goes to ``log``."""

    def __init__(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._arguments = list(arguments)
        self._environment = {**environment, "PYTHONPATH": str(PACKAGE_ROOT), "PYTHONUNBUFFERED": "1"}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "started before it is asked for"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches the demo alone; it ends when the demo dies."""
        launch = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), "-", "-"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [*launch, sys.executable, "-m", "app", *self._arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def ready(self, question: Callable[[], Awaitable[bool]]) -> None:
        """Wait until ``question`` is answered with yes. Raises CliError when the process ends or takes too long."""
        deadline = asyncio.get_running_loop().time() + READY_SECONDS
        while not await question():
            if self._process is None or self._process.poll() is not None:
                raise CliError(f"the {self.name} ended while starting", remedy=DOCTOR, log=self.log_tail())
            if asyncio.get_running_loop().time() > deadline:
                raise CliError(f"the {self.name} is not ready in {READY_SECONDS} s", remedy=DOCTOR, log=self.log_tail())
            await asyncio.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def stop(self) -> None:
        """SIGTERM, and -9 for one that does not listen."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def log_tail(self) -> list[str]:
        """The last lines it wrote."""
        return self.log.read_text(errors="replace").splitlines()[-LOG_LINES:] if self.log.exists() else []
