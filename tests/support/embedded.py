"""Helpers of the tests of the embedded PostgreSQL: queries, processes that keep a server, other users' Pythons."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.embedded import find_binaries
from tests.support.checkout import ROOT

KEEPER = """
import asyncio, sys
from pathlib import Path
from app.embedded import EmbeddedPostgres, EmbeddedPostgresError

async def main():
    postgres = EmbeddedPostgres(Path(sys.argv[1]))
    try:
        print(await postgres.start(), postgres.pid, flush=True)
    except EmbeddedPostgresError as error:
        print("refused:", error, flush=True)
        return
    await asyncio.to_thread(sys.stdin.read)
    await postgres.stop()

asyncio.run(main())
"""


async def value(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def eventually(dsn: str, query: str, seconds: float = 30) -> object:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await value(dsn, query)
        except (OSError, asyncpg.CannotConnectNowError):
            assert time.monotonic() < deadline, "the server did not come back"
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process works; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until_gone(pid: int, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        await asyncio.sleep(0.01)


def keeper(data_dir: Path) -> subprocess.Popen[str]:
    """Another process that keeps an embedded PostgreSQL until its standard input is closed."""
    return _keeper(sys.executable, data_dir, [ROOT])


def foreign_keeper(data_dir: Path, uid: int, open_path: Path) -> subprocess.Popen[str]:
    """The same as another user, who reaches neither our Python nor our checkout: with the system's Python, on copies.

    Skips the test where the system has no python3 >= 3.11: a fact about the machine, not about us.
    """
    python = _ordinary_python()
    if python is None:
        pytest.skip("no python3 >= 3.11 that an ordinary user can start")
    code = open_path / "code"
    shutil.copytree(ROOT / "app", code / "app", ignore=shutil.ignore_patterns("__pycache__"))
    wheel = find_binaries().directory.parents[1]
    if (wheel / "pginstall").is_dir():
        shutil.copytree(wheel, code / wheel.name)
        if (libraries := wheel.with_name(f"{wheel.name}.libs")).is_dir():
            shutil.copytree(libraries, code / libraries.name)
    return _keeper(python, data_dir, [code], user=uid, group=uid, extra_groups=[])


def _keeper(python: str, data_dir: Path, code: list[Path], **identity: Any) -> subprocess.Popen[str]:
    site_packages = Path(asyncpg.__file__).parents[1]
    return subprocess.Popen(
        [python, "-c", KEEPER, str(data_dir)],
        env={"PYTHONPATH": os.pathsep.join(map(str, [*code, site_packages])), "PATH": os.defpath},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **identity,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _ordinary_python() -> str | None:
    for name in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if Path(name).exists():
            answer = subprocess.run([name, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True)
            if answer.stdout.strip() == b"True":
                return name
    return None
