"""``waystation demo``: the story holds, in under a minute, and leaves nothing running."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.cli.demo.stage import reserve_port
from tests.support.cli import background, environment, open_directory, waystation

DEMO_SECONDS = 60
EVENT = re.compile(r"^ {2}([ ↻]) *(\d+) {2}(\S+)", re.MULTILINE)


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


def processes_below(directory: Path) -> list[str]:
    """Command lines of living processes that name ``directory``, or have it as TMPDIR as all of a demo's do."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:  # gone meanwhile, or another user's
                continue
            if os.fsencode(directory) in line + environ:
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_demo_once_tells_the_story_and_stops_everything(place: Path) -> None:
    started = time.monotonic()
    answer = waystation("demo", "--once", env=environment(TMPDIR=str(place)), cwd=place, seconds=150)
    seconds = time.monotonic() - started
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert seconds < DEMO_SECONDS, f"{seconds:.0f} s:\n{answer.stdout}"
    first, second = _acts(answer.stdout)
    _check_cut(first)
    assert re.search(r"kill -9 \d+ \(gateway\) \d+ \(worker\)", second)
    assert "completed in attempt 2" in second
    for act in (first, second):
        seqs = [int(seq) for _, seq, _ in EVENT.findall(act)]
        assert seqs == list(range(1, len(seqs) + 1)), act
        assert "one terminal state" in act
    assert "A2A-Version: 1.0" in answer.stdout
    assert processes_below(place) == []
    assert [path.name for path in place.iterdir()] == []


def _acts(output: str) -> list[str]:
    """The two acts between the set-up and the way out."""
    parts = re.split(r"^\d {2}", output, flags=re.MULTILINE)
    assert len(parts) == 5, output
    return parts[2:4]


def _check_cut(act: str) -> None:
    said = re.search(r"cut: events (\d+)\.\.(\d+); replayed: (\d+)\.\.(\d+)", act)
    assert said, act
    first, last = int(said[1]), int(said[2])
    assert (said[3], said[4]) == (said[1], said[2])
    assert last - first >= 2
    replayed = [int(seq) for mark, seq, _ in EVENT.findall(act) if mark == "↻"]
    assert replayed == list(range(first, last + 1)), act


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_demo_goes_on_serving_and_its_lines_work(place: Path) -> None:
    env = environment(TMPDIR=str(place))
    with background("demo", env=env, cwd=place, log=place / "demo.log") as demo:
        output = demo.wait_for("Serving until Ctrl-C", 150)
        curl = next(line for line in output.splitlines() if line.startswith("curl "))
        answer = subprocess.run(shlex.split(curl), capture_output=True, text=True, timeout=30, check=False)
        assert '"TASK_STATE_COMPLETED"' in answer.stdout, f"{curl}\n{answer.stdout}{answer.stderr}"
        export = next(line for line in output.splitlines() if line.startswith("export "))
        told = dict(word.split("=", 1) for word in shlex.split(export)[1:])
        tasks = waystation("tasks", "list", "-o", "ndjson", env=environment(**told), cwd=place)
        assert len(tasks.stdout.splitlines()) == 3, tasks
        assert demo.stop(signal.SIGINT) == 0
    assert processes_below(place) == []


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_killed_demo_takes_everything_with_it(place: Path) -> None:
    env = environment(TMPDIR=str(place))
    with background("demo", env=env, cwd=place, log=place / "demo.log") as demo:
        demo.wait_for("task.submitted", 90)
        os.kill(demo.process.pid, signal.SIGKILL)
        demo.process.wait()
    deadline = time.monotonic() + 30
    while processes_below(place) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_below(place) == []


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_demo_uses_a_given_database_and_cleans_up_after_itself(empty_database_url: str, place: Path) -> None:
    env = environment(DATABASE_URL=empty_database_url, TMPDIR=str(place))
    answer = waystation("demo", "--once", env=env, cwd=place, seconds=150)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "yours, from DATABASE_URL" in answer.stdout
    assert "demo-" in answer.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is chosen, not kept")
def test_two_demos_never_get_one_port_and_the_gateway_gets_its_own() -> None:
    with ExitStack() as stack:
        ports: list[int] = []
        for _ in range(2):
            port, holder = reserve_port()
            stack.callback(holder.close)
            ports.append(port)
        assert ports[0] != ports[1]
        for _ in range(2):  # the second time after a kill
            socket.create_server(("127.0.0.1", ports[0])).close()


def test_a_demo_that_cannot_go_on_says_why(place: Path) -> None:
    url = "postgresql://someone:hunter2@127.0.0.1:1/x"
    answer = waystation("demo", "--once", env=environment(DATABASE_URL=url, TMPDIR=str(place)), cwd=place)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: the database: ")
    assert "hunter2" not in answer.stdout + answer.stderr
    assert [path.name for path in place.iterdir()] == []
