"""A worker as agent authors run it: ``waystation worker run`` with an unchanged executor, killed at will."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.broker import ROOT
from tests.support.tokens import worker_token


class WorkerProcess:
    """Works for ``agent`` of ``tenant`` with ``target`` (module:class); what it writes goes to ``log``."""

    def __init__(self, base_url: str, agent: str, tenant: str, target: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "app", "worker", "run", target, "--agent", agent]
        self._environment = {
            "PATH": os.environ["PATH"],
            "WAYSTATION_URL": base_url,
            "WAYSTATION_TOKEN": worker_token(tenant, agent),
        }
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """kill -9; returns when it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def close(self) -> None:
        """Ends it whatever its state, and shows what it wrote."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        print(f"--- worker\n{self.log.read_text(errors='replace') if self.log.exists() else ''}")
