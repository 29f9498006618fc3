"""The embedded PostgreSQL's life on real processes: first start, restarts, crashes, refusals."""

import os
import signal
import subprocess
import time
from pathlib import Path

import asyncpg
import pytest

from app.embedded import EmbeddedPostgres, EmbeddedPostgresError, find_binaries
from app.embedded.account import choose_account
from app.embedded.cluster import MAX_LOG_BYTES
from tests.support.embedded import eventually, first_line, is_alive, keeper, value

pytestmark = pytest.mark.slow


async def test_cold_and_warm_start_keep_the_data(open_path: Path) -> None:
    postgres = EmbeddedPostgres(open_path)
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


async def test_listens_on_loopback_with_a_password_and_a_fixed_locale(open_path: Path) -> None:
    postgres = EmbeddedPostgres(open_path)
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
        for secret in open_path.rglob("password"):
            assert secret.stat().st_mode & 0o777 == 0o600
            assert secret.parent.stat().st_mode & 0o777 == 0o700
    finally:
        await postgres.stop()


async def test_server_killed_is_started_again_on_the_same_port(open_path: Path) -> None:
    postgres = EmbeddedPostgres(open_path)
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


async def test_one_data_directory_has_one_owner(open_path: Path) -> None:
    postgres = EmbeddedPostgres(open_path)
    dsn = await postgres.start()
    try:
        with pytest.raises(EmbeddedPostgresError, match="in use by another Waystation"):
            await EmbeddedPostgres(open_path).start()
        assert await value(dsn, "SELECT 1") == 1
        with keeper(open_path) as other:
            assert first_line(other).startswith("refused: ")
    finally:
        await postgres.stop()


async def test_two_directories_at_once(open_path: Path) -> None:
    first, second = EmbeddedPostgres(open_path / "one"), EmbeddedPostgres(open_path / "two")
    dsns = [await first.start(), await second.start()]
    assert [await value(dsn, "SELECT 1") for dsn in dsns] == [1, 1]
    await first.stop()
    assert await value(dsns[1], "SELECT 1") == 1
    await second.stop()


async def test_another_major_version_is_refused(open_path: Path) -> None:
    postgres = EmbeddedPostgres(open_path)
    await postgres.start()
    await postgres.stop()
    (version,) = open_path.rglob("data/PG_VERSION")
    version.write_text("14\n")
    with pytest.raises(EmbeddedPostgresError, match=r"made by PostgreSQL 14 .* pg_dump"):
        await postgres.start()
    version.write_text(f"{find_binaries().major}\n")
    await postgres.start()  # the refusal freed the lock
    await postgres.stop()


async def test_supervisor_killed_takes_its_server_along(open_path: Path) -> None:
    with keeper(open_path) as parent:
        dsn, pid = first_line(parent).split()
        await value(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        parent.kill()
    postgres = EmbeddedPostgres(open_path)
    dsn = await postgres.start()  # at once: the old server may still be shutting down
    assert await value(dsn, "SELECT n FROM kept") == 7
    assert not is_alive(int(pid))
    await postgres.stop()


async def test_server_that_outlived_its_supervisor_is_ended_first(open_path: Path) -> None:
    """As where the kernel has no parent-death signal: the old server is found working in the directory."""
    postgres = EmbeddedPostgres(open_path)
    dsn = await postgres.start()
    await value(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    orphan = postgres.pid
    assert orphan is not None
    await postgres.suspend_watch()
    postgres._lock.close()  # what the kernel does when the supervisor dies
    second = EmbeddedPostgres(open_path)
    dsn = await second.start()
    assert await value(dsn, "SELECT n FROM kept") == 7
    assert postgres.has_ended()
    await second.stop()


async def test_pid_file_of_another_process_is_stale(open_path: Path) -> None:
    """After a crash the recorded pid may belong to another program: PostgreSQL alone would refuse for ever."""
    postgres = EmbeddedPostgres(open_path)
    await postgres.start()
    await postgres.suspend_watch()
    assert postgres.pid is not None
    (pid_file,) = open_path.rglob("postmaster.pid")
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
    account = choose_account()
    return {"user": account.uid, "group": account.gid, "extra_groups": []} if account.switch else {}


async def test_interrupted_first_start_begins_anew(open_path: Path) -> None:
    postgres = EmbeddedPostgres(open_path)
    await postgres.start()
    await postgres.stop()
    (data,) = open_path.rglob("data")
    (data / "PG_VERSION").unlink()
    data.rename(data.with_name("data.new"))  # as a kill -9 during initdb leaves it
    assert await value(await postgres.start(), "SELECT 1") == 1
    await postgres.stop()


async def test_a_large_log_is_put_aside(open_path: Path) -> None:
    postgres = EmbeddedPostgres(open_path)
    await postgres.start()
    await postgres.stop()
    (log,) = open_path.rglob("server.log")
    os.truncate(log, MAX_LOG_BYTES + 1)
    await postgres.start()
    await postgres.stop()
    assert log.stat().st_size < 100_000
    assert log.with_name("server.log.1").stat().st_size == MAX_LOG_BYTES + 1


async def test_failed_start_says_why_and_leaves_nothing(open_path: Path) -> None:
    postgres = EmbeddedPostgres(open_path, {"shared_buffers": "nonsense"})
    with pytest.raises(EmbeddedPostgresError, match=r"does not start: .*shared_buffers"):
        await postgres.start()
    assert postgres.pid is None
    fixed = EmbeddedPostgres(open_path)
    await fixed.start()
    await fixed.stop()
