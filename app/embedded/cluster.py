"""One data directory of the embedded PostgreSQL: made once, locked while in use, taken over after a crash.

Called by the supervisor. A *home* holds ``data`` (the cluster), ``password`` and ``server.log``, all of them readable
by the account only.
"""

import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.embedded.account import Account
from app.embedded.binaries import Binaries
from app.embedded.errors import EmbeddedPostgresError

SUPERUSER = "waystation"
DATABASE = "waystation"
LAUNCHER = Path(__file__).with_name("launch.py")
PROGRAM_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}
TAKE_OVER_SECONDS = 60
LOG_TAIL_LINES = 5
MAX_LOG_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Cluster:
    """A home, its owner and the programs that work on it."""

    home: Path
    account: Account
    binaries: Binaries

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    def password(self) -> str:
        """The superuser's password, made with the cluster."""
        return (self.home / "password").read_text().strip()

    def spawn(self, program: str, *arguments: str, stdin: int, output: int | IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start a server program as the account, in a session of its own; it ends when our thread does (launch.py)."""
        uid, gid = (str(self.account.uid), str(self.account.gid)) if self.account.switch else ("-", "-")
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), uid, gid]
        command = [*launcher, self.binaries.program(program), *arguments]
        return subprocess.Popen(
            command, env=PROGRAM_ENVIRONMENT, start_new_session=True,
            stdin=stdin, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def create(self) -> None:
        """Make the cluster unless it exists. It is built aside and renamed, so one that exists is whole.

        Raises EmbeddedPostgresError when initdb fails, or when the cluster is of another major version.
        """
        version = self.data / "PG_VERSION"
        if not version.exists():
            self._initialize()
        elif (found := version.read_text().strip()) != str(self.binaries.major):
            raise EmbeddedPostgresError(
                f"{self.data} was made by PostgreSQL {found} but the programs ({self.binaries.source}) are version "
                f"{self.binaries.major}: dump it with {found}'s pg_dump, move the directory away and restore the dump, "
                f"or install PostgreSQL {found}"
            )

    def _initialize(self) -> None:
        fresh = self.home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        password = self.home / "password"
        with open(os.open(password, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_hex(24))
        self.account.own(password)
        self._complete(
            "initdb", f"--pgdata={fresh}", f"--username={SUPERUSER}", f"--pwfile={password}", "--auth-local=reject",
            "--auth-host=scram-sha-256", "--locale=C", "--encoding=UTF8", "--no-instructions",
        )  # fmt: skip
        self._complete(
            "postgres", "--single", "-D", str(fresh), "postgres", query=f"CREATE DATABASE {DATABASE}\n".encode()
        )
        fresh.rename(self.data)

    def _complete(self, program: str, *arguments: str, query: bytes = b"") -> None:
        process = self.spawn(program, *arguments, stdin=subprocess.PIPE, output=subprocess.PIPE)
        output, _ = process.communicate(query)
        if process.returncode != 0 or b"ERROR:" in output:
            text = " | ".join(output.decode(errors="replace").strip().splitlines()[-LOG_TAIL_LINES:])
            raise EmbeddedPostgresError(f"{program} failed in {self.home}: {text}")

    def open_log(self) -> IO[bytes]:
        """The server's log to append to, begun anew when it has grown large."""
        if self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        return open(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    def tail(self) -> str:
        """The log's last lines in one, for an error message."""
        if not self.log.exists():
            return "no log"
        lines = self.log.read_text(errors="replace").splitlines()
        return " | ".join(lines[-LOG_TAIL_LINES:])

    def take_over(self) -> None:
        """End what an earlier supervisor left working on this directory; call it with the lock held.

        A pid alone proves nothing (it may belong to another program by now): it is the server's when it works in this
        data directory. A pid file whose process does not is stale and removed, since PostgreSQL, believing the pid,
        would refuse to start. Raises EmbeddedPostgresError when the old server does not end within a minute.
        """
        deadline = time.monotonic() + TAKE_OVER_SECONDS
        asked = False
        while (pid := self.recorded_pid()) is not None:
            if not self._works_here(pid):
                (self.data / "postmaster.pid").unlink(missing_ok=True)
                return
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"an earlier PostgreSQL (pid {pid}) on {self.data} does not end: stop it")
            if not asked:
                os.kill(pid, signal.SIGINT)
                asked = True
            time.sleep(0.02)

    def recorded_pid(self) -> int | None:
        """The pid in postmaster.pid, if there is one."""
        try:
            return int((self.data / "postmaster.pid").read_text().splitlines()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def ready_port(self) -> int | None:
        """The port in postmaster.pid once the server has written that it accepts connections there."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        return int(lines[3]) if len(lines) > 7 and lines[7].strip() == "ready" else None

    def accepts(self, port: int) -> bool:
        """Whether pg_isready says that a server accepts connections on ``port``."""
        command = [self.binaries.program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "2"]
        return subprocess.run(command, env=PROGRAM_ENVIRONMENT, check=False, stderr=subprocess.DEVNULL).returncode == 0

    def _works_here(self, pid: int) -> bool:
        try:
            if sys.platform == "linux":
                return os.path.samefile(f"/proc/{pid}/cwd", self.data)
            os.kill(pid, 0)
        except OSError:
            return False
        port = self.ready_port()
        return port is not None and self.accepts(port)


def lock(data_dir: Path) -> IO[bytes]:
    """Take the lock of ``data_dir``; it is held until the returned file is closed or the process ends.

    Raises EmbeddedPostgresError when another process has it.
    """
    path = data_dir / "postgres.lock"
    try:
        file = path.open("ab")
    except OSError as error:
        raise EmbeddedPostgresError(
            f"cannot write {path} ({error.strerror}): start as the user it belongs to, set WAYSTATION_DATA_DIR "
            "to another directory, or set DATABASE_URL to a running PostgreSQL"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise EmbeddedPostgresError(
            f"{data_dir} is in use by another Waystation: stop that one, set WAYSTATION_DATA_DIR to another directory, "
            "or set DATABASE_URL to share one database"
        ) from None
    return file
