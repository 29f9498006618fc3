"""Worker processes of fault tests (work.py), started, killed, stopped and kept alive. Called by tests and by storm.py.

As for brokers, ``spawn`` stays on the main thread: a worker ends with the thread that started it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from app.embedded.cluster import LAUNCHER
from tests.fault.history import Op, load
from tests.support.broker import ROOT
from tests.support.tokens import worker_token


class Fleet:
    """The workers of one agent of tenant a, and the files of what they did."""

    def __init__(self, urls: Sequence[str], agent: str, directory: Path) -> None:
        self._urls = list(urls)
        self._agent = agent
        self._directory = directory
        self._running: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def spawn(self, count: int = 1) -> list[int]:
        """Start workers; the places of the new ones."""
        return [self._spawn(len(self._running)) for _ in range(count)]

    def _spawn(self, place: int) -> int:
        config = {
            "urls": self._urls,
            "token": worker_token("a", self._agent),
            "agent": self._agent,
            "worker": f"worker-{self._started}",
            "history": str(self._directory / f"worker-{self._started}.jsonl"),
        }
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), "-", "-"]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        with (self._directory / f"worker-{self._started}.log").open("ab") as log:
            process = subprocess.Popen(
                [*launcher, sys.executable, "-S", "-m", "tests.fault.work", json.dumps(config)],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._started += 1
        self._running[place : place + 1] = [process]
        return place

    def kill(self, place: int) -> None:
        """kill -9, and another one in its place."""
        self._running[place].kill()
        self.revive()

    def signal(self, place: int, how: signal.Signals) -> None:
        """Send a signal to the one that is in this place now; one that has died does not hear it."""
        self._running[place].send_signal(how)

    def revive(self) -> None:
        """Start the killed ones again, under new names. One that ended otherwise fails the test."""
        for place, process in enumerate(self._running):
            if process.poll() is not None:
                assert process.returncode == -signal.SIGKILL, self.output()
                self._spawn(place)

    def close(self) -> None:
        """End all of them; fails when one had ended by itself."""
        ended = [process.returncode for process in self._running if process.poll() not in (None, -signal.SIGKILL)]
        for process in self._running:
            process.kill()
            process.wait(10)
        assert not ended, self.output()

    def ops(self) -> list[Op]:
        """What all of them have done so far."""
        return load(sorted(self._directory.glob("worker-*.jsonl")))

    def output(self) -> str:
        return "".join(log.read_text(errors="replace") for log in sorted(self._directory.glob("worker-*.log")))
