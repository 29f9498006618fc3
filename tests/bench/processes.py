"""Processes of the benchmark: started, waited for until they answer, and ended."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(command: list[str], environment: dict[str, str] | None = None, port: int | None = None) -> Generator[int]:
    """Runs a process, waits until it listens on ``port``, gives its pid, ends it (SIGTERM, SIGKILL after 10 s).

    Raises RuntimeError with its output when it stops or does not listen in time.
    """
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, **(environment or {})}
        )
        try:
            if port is not None and not _listens(process, port):
                output.seek(0)
                raise RuntimeError(f"{' '.join(command)} does not listen:\n{output.read()[-4000:]}")
            yield process.pid
            if process.poll() is not None:
                output.seek(0)
                raise RuntimeError(f"{' '.join(command)} stopped ({process.returncode}):\n{output.read()[-4000:]}")
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, where /proc tells; 0 elsewhere."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
