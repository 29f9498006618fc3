"""The machine and the process: Python, platform, user, packages, port, files."""

import errno
import getpass
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from app.cli.doctor.report import Finding, Level, fail, judge, ok, warn
from app.cli.output import JsonObject
from app.settings import Settings

OLDEST_PYTHON = (3, 11)
MACHINES = ("x86_64", "AMD64", "aarch64", "arm64")
READY_SECONDS = 2
OTHER_PORT = "not a broker, or one that hangs: stop what listens there, or choose another WAYSTATION_PORT"
UNREADY = "it comes back by itself when these are over; its log says more"
FILES_BESIDE_STREAMS = 256
"""Descriptors for the pool, the listener, the log and plain requests."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)")


def check_host(settings: Settings) -> Iterator[Finding]:
    yield _python()
    yield _platform()
    yield _user()
    yield _packages()
    yield _port(settings)
    if settings.grpc_port is not None:
        yield _grpc()
    yield _open_files(settings)


def _python() -> Finding:
    detail = f"{platform.python_implementation()} {platform.python_version()} in {sys.prefix}"
    return judge(sys.version_info >= OLDEST_PYTHON, "python", detail, "install Python 3.11 or newer")


def _platform() -> Finding:
    libc = " ".join(platform.libc_ver()) or "another libc (musl?)"
    detail = f"{platform.system()} {platform.machine()}, {libc.strip()}"
    good = platform.machine() in MACHINES
    return judge(good, "platform", detail, "x86-64 and arm64 are tested; others may work", otherwise=Level.WARN)


def _user() -> Finding:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return warn(
            "user",
            f"uid {os.getuid()} has no passwd row",
            "the embedded PostgreSQL needs one: add it, or use DATABASE_URL",
        )
    if os.getuid() == 0:
        return ok("user", f"{name}: the embedded PostgreSQL runs as postgres or nobody; a broker needs no root")
    return ok("user", name)


def constraints_file() -> Path | None:
    """constraints.txt beside the package (a checkout, the image), or None in a plain installation."""
    path = Path(__file__).parents[3] / "constraints.txt"
    return path if path.is_file() else None


def _packages() -> Finding:
    path = constraints_file()
    if path is None:
        return ok("packages", "no constraints.txt here to compare with")
    pins = {match[1]: match[2] for line in path.read_text().splitlines() if (match := _PIN.match(line))}
    other: list[str] = []
    pins.pop("setuptools", None)  # a virtual environment brings one of its own, and only build tools need it
    for name, pin in pins.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that is not installed
        if found != pin:
            other.append(f"{name} {found} (pinned {pin})")
    if other:
        return warn("packages", ", ".join(other), "pip install -c constraints.txt -e '.[embedded]'")
    return ok("packages", "all as in constraints.txt")


def _port(settings: Settings) -> Finding:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as exc:
            detail = f"{settings.host}:{settings.port}: {exc.strerror}"
            if exc.errno == errno.EADDRINUSE:
                return _listener(settings.host, settings.port) or warn("port", detail, OTHER_PORT)
            return fail("port", detail, "choose another WAYSTATION_HOST or WAYSTATION_PORT")
    return ok("port", f"{settings.host}:{settings.port} is free")


def _listener(host: str, port: int) -> Finding | None:
    """What the broker that listens there says of itself; None when it is something else."""
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    try:
        answer: JsonObject = httpx.get(f"{url}/readyz", timeout=READY_SECONDS, trust_env=False).json()
        status, reasons = answer["status"], [str(reason) for reason in answer["reasons"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None
    detail = f"{host}:{port}: a broker listens there, {status}"
    return ok("port", detail) if status == "ready" else warn("port", f"{detail}: {'; '.join(reasons)}", UNREADY)


def _grpc() -> Finding:
    installed = all(importlib.util.find_spec(name) for name in ("a2a", "grpc", "grpc_health"))
    detail = "the gRPC door's packages are installed" if installed else "WAYSTATION_GRPC_PORT needs an extra"
    return judge(installed, "grpc", detail, f"{sys.executable} -m pip install 'waystation[grpc]'")


def _open_files(settings: Settings) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.max_streams + settings.pool_size + FILES_BESIDE_STREAMS
    detail = f"limit {soft} (hard {hard}), {needed} needed for {settings.max_streams} streams"
    remedy = f"ulimit -n {needed}, or a smaller WAYSTATION_MAX_STREAMS"
    return judge(soft == resource.RLIM_INFINITY or soft >= needed, "open files", detail, remedy, otherwise=Level.WARN)
