"""What a door costs by itself: parsing, authorising and rendering one call, the broker's against the official SDK's.

    python -m tests.bench.doors [--repeats 15] [--count 300]

``make bench`` runs it. Both sides are ASGI applications that are called in their own processes without a socket, with
the operation replaced by one that answers at once with the same task: what is left is the door. The broker's verifies a
token (remembered, as every client's but for its first call) and counts metrics; the SDK's does neither. The figure is
processor time, not time; the sides take turns in changing order. Prints the medians, the ratio and its range.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.bench.door_calls import CALLS
from tests.bench.processes import ROOT
from tests.interop.environments import python_environment

GOAL = 1 / 3
REQUIREMENTS = Path(__file__).parent / "requirements-sdk-server.txt"


class Side:
    """A process with one side's doors. Use as a context manager."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        self._command = [python, "-m", "tests.bench.door_side", name]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._read() == {"ready": True}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, **order: Any) -> dict[str, Any]:
        """The side's answer to one order. Raises RuntimeError when its process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the side {self.name} has ended with {self._process.wait()}")
        return json.loads(line)


def check(sides: list[Side]) -> None:
    """Both answer every call alike, but for empty fields, which the SDK prints in lists. Raises RuntimeError."""
    for call in CALLS:
        ours, theirs = (_filled(side.ask(call=call)) for side in sides)
        if ours != theirs or ours["status"] != 200:
            raise RuntimeError(f"{call} is answered in two ways:\n{str(ours)[:2000]}\n{str(theirs)[:2000]}")


def _filled(value: Any) -> Any:
    """The same without empty texts and lists."""
    if isinstance(value, dict):
        return {key: _filled(item) for key, item in value.items() if item not in ("", [])}
    return [_filled(item) for item in value] if isinstance(value, list) else value


def compare(sides: list[Side], repeats: int, count: int) -> dict[str, list[tuple[float, float]]]:
    """Microseconds of each repeat: the broker's and the SDK's."""
    for call in CALLS:
        for side in sides:
            side.ask(call=call, count=max(1, count // 5))  # caches are filled
    figures: dict[str, list[tuple[float, float]]] = {call: [] for call in CALLS}
    for number in range(repeats):
        for call in CALLS:
            turn = sides if number % 2 == 0 else sides[::-1]
            measured = {side.name: side.ask(call=call, count=count)["microseconds"] for side in turn}
            figures[call].append((measured["broker"], measured["sdk"]))
    return figures


def report(figures: dict[str, list[tuple[float, float]]]) -> None:
    print(f"{'call':<28}{'broker µs':>10}{'SDK µs':>10}{'ratio':>8}   range")
    worst = 0.0
    for call, pairs in figures.items():
        ratios = [ours / theirs for ours, theirs in pairs]
        ours, theirs, ratio = (statistics.median(one) for one in (*zip(*pairs, strict=True), ratios))
        note = "" if CALLS[call].counted else "   for information"
        print(f"{call:<28}{ours:>10.0f}{theirs:>10.0f}{ratio:>8.3f}   {min(ratios):.3f}..{max(ratios):.3f}{note}")
        if CALLS[call].counted:
            worst = max(worst, ratio)
    print(
        f"goal: every median ratio <= {GOAL:.3f}; the greatest is {worst:.3f}: {'met' if worst <= GOAL else 'MISSED'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--count", type=int, default=300, help="calls of one turn")
    options = parser.parse_args()
    print("command: python -m tests.bench.doors", " ".join(sys.argv[1:]))
    version = next(line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("a2a-sdk=="))
    print(f"machine: {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}; {version}")
    sdk = python_environment("sdk-server", REQUIREMENTS)
    with Side("broker", sys.executable) as ours, Side("sdk", str(sdk)) as theirs:
        check([ours, theirs])
        report(compare([ours, theirs], options.repeats, options.count))


if __name__ == "__main__":
    main()
