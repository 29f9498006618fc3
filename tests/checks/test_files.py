"""Rules about the files themselves: length, machine paths, registry hosts, complete constraints."""

import re
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.checkout import ROOT, tracked_files

MAX_LINES = 400
MACHINE_PATH = re.compile(rb"(?<![\w.}/~-])/(?:work|root|home|Users)/[A-Za-z]")
# Written with gaps, so that this file does not hold them.
REGISTRY_HOSTS = [
    host.replace(b" ", b"")
    for host in (b"pypi .org", b"python hosted.org", b"npm js.org", b"golang .org", b"deb ian.org", b"crates .io")
]


def test_no_module_is_too_long() -> None:
    long = {
        str(path): lines
        for path in tracked_files()
        if path.suffix == ".py" and path.parts[0] in {"app", "migrations", "sdk", "tests"}
        if (lines := len((ROOT / path).read_bytes().splitlines())) > MAX_LINES
    }
    assert not long, f"over {MAX_LINES} lines, split them: {long}"


def test_no_path_of_one_machine() -> None:
    found = [
        f"{path}:{number}"
        for path in tracked_files()
        for number, line in enumerate((ROOT / path).read_bytes().splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found


def test_no_host_of_a_package_registry() -> None:
    files = tracked_files()
    assert not [f"{path}: {host}" for path in files for host in REGISTRY_HOSTS if host in (ROOT / path).read_bytes()]


@pytest.mark.parametrize(
    ("line", "bad"),
    [("cd %sroot/x", True), ("in '%shome/me'", True), ("GET /v1%swork/items", False), (".%swork/a", False)],
)
def test_machine_paths_are_recognised(line: str, bad: bool) -> None:
    assert bool(MACHINE_PATH.search((line % "/").encode())) is bad


def test_constraints_pin_everything() -> None:
    """Each requirement, also an indirect one, has its exact release in constraints.txt and is installed in that one."""
    lines = (ROOT / "constraints.txt").read_text().split()
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    needed = requirements("waystation", "embedded", "test")
    assert needed - pinned.keys() == set()
    differing = {name: distribution(name).version for name in needed if distribution(name).version != pinned[name]}
    assert not differing, "installed in another release than pinned; ./waystation test installs the pinned ones"


def requirements(root: str, *root_extras: str) -> set[str]:
    """The names of all distributions that ``root`` with these extras needs, in this environment."""
    needed: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [(root, extra) for extra in ("", *root_extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for text in distribution(name).requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed.add(canonicalize_name(requirement.name))
                waiting += [(requirement.name, wanted) for wanted in ("", *requirement.extras)]
    return needed
