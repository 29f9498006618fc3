"""Environments that hold the official A2A SDKs, made on demand and kept in ``.cache/interop`` under the repository
root.

``tests/interop/conftest.py`` asks for one per client, ``tests/bench`` for the SDK's server. Each is keyed by a hash of
its requirement files, so that changing a pin makes a new one; a file lock lets several xdist workers ask at once.
Nothing of the broker is installed in them.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "interop"
CLIENTS = Path(__file__).parent / "clients"
INSTALL_SECONDS = 600


class EnvironmentMissingError(Exception):
    """An environment cannot be made on this machine; the text says what is missing."""


def python_client(sdk_version: str) -> list[str]:
    """The command of the Python client program on ``a2a-sdk`` of exactly this version.

    Raises EnvironmentMissingError when the packages cannot be installed.
    """
    python = python_environment(f"python-{sdk_version}", CLIENTS / f"requirements-{sdk_version}.txt")
    return [str(python), str(CLIENTS / "python_client.py")]


def python_environment(name: str, requirements: Path) -> Path:
    """The interpreter of a virtual environment with exactly these requirements.

    Raises EnvironmentMissingError when they cannot be installed.
    """
    with _folder(name, [requirements], salt=sys.version) as (folder, ready):
        python = folder / "bin" / "python"
        if not ready:
            _install([sys.executable, "-m", "venv", str(folder)])
            _install([str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)])
    return python


def node_client(programs: Path = CLIENTS) -> list[str]:
    """The command of the JavaScript client program ``node_client.mjs`` in ``programs``, on the ``@a2a-js/sdk`` that the
    ``package-lock.json`` beside it pins.

    Raises EnvironmentMissingError without Node.js 20 or newer, or when the packages cannot be installed.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise EnvironmentMissingError("node and npm are not on the PATH")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < 20:
        raise EnvironmentMissingError(f"@a2a-js/sdk needs Node.js 20 or newer, found {version}")
    files = [programs / name for name in ("package.json", "package-lock.json", "node_client.mjs")]
    with _folder("node", files) as (folder, ready):
        if not ready:
            folder.mkdir()
            for file in files:
                shutil.copy(file, folder)
            _install([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)])
    return [node, str(folder / "node_client.mjs")]


@contextmanager
def _folder(name: str, files: list[Path], salt: str = "") -> Generator[tuple[Path, bool]]:
    """The folder of an environment and whether it is complete; the body completes it. Held by one process at a time."""
    digest = hashlib.sha256(salt.encode())
    for file in files:
        digest.update(file.read_bytes())
    folder = CACHE / f"{name}-{digest.hexdigest()[:16]}"
    marker = folder / ".complete"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = marker.exists()
        if not ready:
            shutil.rmtree(folder, ignore_errors=True)
        yield folder, ready
        marker.touch()


def _install(command: list[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS, env=environment
    )
    if result.returncode != 0:
        raise EnvironmentMissingError(f"{' '.join(command)} failed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
