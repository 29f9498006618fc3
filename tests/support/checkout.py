"""This checkout's files. Called by the checks and by the tests that install a copy of it."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked_files() -> list[Path]:
    """What is, or is about to be, in the repository, relative to ROOT."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return [Path(name) for name in listing.decode().split("\0") if name and (ROOT / name).is_file()]


def copy_checkout(target: Path, wanted: Callable[[str], bool] = lambda _: True) -> None:
    """Copy the tracked files whose relative name is ``wanted``, as a fresh clone with this state would have them."""
    for path in tracked_files():
        if wanted(str(path)):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, target / path)
