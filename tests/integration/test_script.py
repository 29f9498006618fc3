"""The script ``./waystation``: what it says when it cannot work, and the two commands on a fresh checkout."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.checkout import ROOT, copy_checkout

SCRIPT = ROOT / "waystation"


def environment(**more: str) -> dict[str, str]:
    """What a user's shell has: nothing of this test run, no virtual environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WAYSTATION_", "PY", "DATABASE"))}
    return kept | {"PYTHON": getattr(sys, "_base_executable", sys.executable)} | more


def call(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [str(directory / "waystation"), *arguments]
    return subprocess.run(command, env=environment(**variables), cwd=directory, capture_output=True, text=True)


@pytest.fixture
def script_alone(tmp_path: Path) -> Path:
    (tmp_path / "waystation").write_bytes(SCRIPT.read_bytes())
    (tmp_path / "waystation").chmod(0o755)
    return tmp_path


def fake_python(directory: Path, body: str) -> str:
    path = directory / "fake-python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_an_old_python_is_named_in_one_line(script_alone: Path) -> None:
    old = fake_python(script_alone, '[ "$1" = -V ] && echo "Python 3.10.2"')
    answer = call(script_alone, "demo", PYTHON=old)
    assert answer.returncode == 2
    assert answer.stderr == (
        "waystation: Python 3.11 or newer is needed (Python 3.10.2): install one, or set PYTHON=/path/to/python3.11\n"
    )


def test_a_missing_python_is_named_in_one_line(script_alone: Path) -> None:
    answer = call(script_alone, "demo", PYTHON=str(script_alone / "nothing"))
    assert answer.returncode == 2
    assert answer.stderr.startswith("waystation: Python 3.11 or newer is needed (none found): ")
    assert answer.stderr.count("\n") == 1


def test_debian_without_ensurepip_is_told_the_package(script_alone: Path) -> None:
    bare = fake_python(script_alone, f'case "$2" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"')
    answer = call(script_alone, "test", PYTHON=bare)
    assert answer.returncode == 2
    assert answer.stderr.endswith("apt-get install python3-venv\n")
    assert answer.stderr.count("\n") == 1
    assert not (script_alone / ".venv").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fresh_checkout_installs_once_and_tells_the_story(tmp_path: Path) -> None:
    """In a directory with a space, two commands at once: one installs, the other waits; then the demo works."""
    fresh = tmp_path / "a checkout"
    copy_checkout(fresh)
    both = [
        subprocess.Popen(
            [fresh / "waystation", "--version"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    answers = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert sum("installing" in complaints for _, complaints in answers) == 1

    begun = time.monotonic()
    answer = call(fresh, "demo", "--once")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert time.monotonic() - begun < 60
    assert "installing" not in answer.stderr
    assert not processes_of(fresh), "the demo leaves nothing running"

    (fresh / "pyproject.toml").write_text((fresh / "pyproject.toml").read_text() + "\n# changed\n")
    assert "installing" in call(fresh, "--version").stderr


def processes_of(directory: Path) -> list[str]:
    """The command lines of living processes that name ``directory``."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line:
            found.append(line)
    return found
