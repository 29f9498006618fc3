"""The command line as people use it: processes, exit codes, what they print. Called by the CLI's tests."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from app.cli import main
from app.embedded.cluster import LAUNCHER
from tests.support.tokens import DEV_SECRET

ROOT = Path(__file__).parents[2]
PATHS = f"{ROOT}{os.pathsep}{ROOT / 'sdk/python/src'}"
COMMAND_SECONDS = 60


def environment(**extra: str) -> dict[str, str]:
    """A bare environment in which ``python -m app`` works, wherever it is started."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"PYTHONPATH": PATHS, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"} | extra


def dev_environment(base_url: str, tenant: str = "a", **extra: str) -> dict[str, str]:
    """An environment whose commands speak to a test's broker, with tokens of ``tenant`` that they mint themselves."""
    own = {"WAYSTATION_URL": base_url, "WAYSTATION_DEV_SECRET": DEV_SECRET, "WAYSTATION_TENANT": tenant}
    return environment(**own, **extra)


def waystation(
    *arguments: str, env: Mapping[str, str], cwd: Path, stdin: str = "", seconds: float = COMMAND_SECONDS
) -> "subprocess.CompletedProcess[str]":
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        env=dict(env), cwd=cwd, input=stdin, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


def here(*arguments: str, env: Mapping[str, str], cwd: Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """The same as ``waystation``, in this process: a second less for each command. Not for several threads at once, and
    not for commands that listen to signals."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, env, clear=True),
        patch.object(sys, "argv", ["waystation", *arguments]),
        patch.object(sys, "stdin", io.StringIO(stdin)),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())


@contextmanager
def open_directory() -> Generator[Path]:
    """A temporary directory that everybody may enter: as root, the embedded PostgreSQL runs as another user."""
    with tempfile.TemporaryDirectory(prefix="waystation-cli-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


class Background:
    """A command that goes on, such as a worker; its output is in ``log``."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path) -> None:
        self.log = log
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), "-", "-"]
        # the launcher goes to "/" with a narrow umask: a shell brings the command back to what a terminal has
        shell = ["/bin/sh", "-c", 'umask 022 && cd "$0" && exec "$@"', str(cwd), *command]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                launcher + shell, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, seconds: float = COMMAND_SECONDS) -> str:
        """Wait until ``text`` is in the output; fail when the process ends without it, or when it takes too long."""
        deadline = time.monotonic() + seconds
        while text not in self.output():
            ended = self.process.poll()
            if ended is not None and text not in self.output():
                raise AssertionError(f"ended with {ended} before {text!r}:\n{self.output()}")
            assert time.monotonic() < deadline, f"no {text!r} in {seconds} s:\n{self.output()}"
            time.sleep(0.02)
        return self.output()

    def stop(self, how: signal.Signals = signal.SIGTERM, seconds: float = COMMAND_SECONDS) -> int:
        """Signal it, and its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(seconds)


@contextmanager
def background(*arguments: str, env: Mapping[str, str], cwd: Path, log: Path) -> Generator[Background]:
    """``waystation`` with these arguments in the background, killed at the end if it still lives."""
    running = Background([sys.executable, "-m", "app", *arguments], env, cwd, log)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        print(f"--- {' '.join(arguments)}\n{running.output()}")
