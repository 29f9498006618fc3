"""Blocking lifecycles per second: the broker against the official SDK's server, on one PostgreSQL, in one run.

    python -m tests.bench.lifecycles [--quick] [--clients 64] [--repeats 5] [--seconds 10]

``make bench`` runs it. A lifecycle is submit, WORKING, two artifact events, COMPLETED, each durable before it is
acknowledged, and the answer to the waiting client. Both sides get the same load generator, PostgreSQL (default
durability), pool size and number of server processes, and take turns; the broker verifies tokens, counts metrics and
has its work done by an HTTP worker in a process of its own, the SDK's server does neither and runs its executor inside.
Prints every repeat, the medians, the ratio and its range.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.embedded import EmbeddedPostgres
from tests.bench import broker_side, sdk_side
from tests.bench.processes import ROOT, cpu_seconds
from tests.bench.sides import Settings, Side, query

POSTGRES_OPTIONS = {"shared_buffers": "256MB", "max_connections": "100"}
SHOWN_OPTIONS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
)


@dataclass(frozen=True)
class Measured:
    """One turn of one side. Times in milliseconds; ``cpu`` is what the side's own processes used for one lifecycle."""

    rate: float
    p50: float
    p99: float
    cpu: float


async def measure(side: Side, clients: int, warmup: float, seconds: float) -> Measured:
    """Loads one side. Raises RuntimeError when a single answer was not the whole lifecycle's."""
    order = {
        "port": side.port, "path": side.path, "token": side.token,
        "clients": clients, "warmup": warmup, "seconds": seconds,
    }  # fmt: skip
    before = sum(map(cpu_seconds, side.pids))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.load", json.dumps(order),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the load generator failed on {side.name}:\n{errors.decode()[-2000:]}")
    result = json.loads(output)
    if result["errors"]:
        raise RuntimeError(f"{side.name}: {result['errors']} wrong answers, first: {result['first_error']}")
    cpu = (sum(map(cpu_seconds, side.pids)) - before) * 1000 / max(1, result["answered"])
    return Measured(result["rate"], result["p50"], result["p99"], cpu)


async def compare(sides: list[Side], options: argparse.Namespace) -> list[dict[str, Measured]]:
    """All repeats; the sides change places from one repeat to the next, so that drift of the machine favours none."""
    repeats: list[dict[str, Measured]] = []
    for side in sides:
        await measure(side, clients=1, warmup=0, seconds=1)  # both have made their tables and filled their pools
    for number in range(options.repeats):
        turn = sides if number % 2 == 0 else list(reversed(sides))
        results = {side.name: await measure(side, options.clients, options.warmup, options.seconds) for side in turn}
        repeats.append(results)
        print(
            f"repeat {number + 1}: "
            + ", ".join(f"{s.name} {results[s.name].rate:.1f}/s (p50 {results[s.name].p50:.0f} ms)" for s in sides)
            + f", ratio {ratio(results, sides):.2f}",
            flush=True,
        )
    return repeats


def ratio(results: dict[str, Measured], sides: list[Side]) -> float:
    ours, theirs = sides
    return results[ours.name].rate / results[theirs.name].rate


def report(repeats: list[dict[str, Measured]], sides: list[Side]) -> None:
    for side in sides:
        rates = [results[side.name].rate for results in repeats]
        middle = statistics.median(results[side.name].p50 for results in repeats)
        cpu = statistics.median(results[side.name].cpu for results in repeats)
        slowest = statistics.median(results[side.name].p99 for results in repeats)
        print(
            f"{side.name}: median {statistics.median(rates):.1f} lifecycles/s ({min(rates):.1f}..{max(rates):.1f}), "
            f"p50 {middle:.0f} ms, p99 {slowest:.0f} ms, {cpu:.1f} ms CPU each without PostgreSQL"
        )
    ratios = [ratio(results, sides) for results in repeats]
    spread = f"range {min(ratios):.2f}..{max(ratios):.2f}, {len(ratios)} repeats"
    print(f"ratio: median {statistics.median(ratios):.2f} ({spread})")


async def run(options: argparse.Namespace) -> None:
    with _directory() as directory:
        postgres = EmbeddedPostgres(directory, POSTGRES_OPTIONS)
        await postgres.start()
        try:
            settings = Settings(options.pool_size, options.worker_concurrency)
            print("command:", "python -m tests.bench.lifecycles", " ".join(sys.argv[1:]))
            print(f"machine: {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}")
            shown = [f"{name} {await query(postgres.dsn(), f'SHOW {name}')}" for name in SHOWN_OPTIONS]
            print("PostgreSQL:", ", ".join(shown))
            print(
                f"both sides: {options.clients} clients, 1 server process, pool {options.pool_size}, "
                f"{options.warmup:g} s warm-up and {options.seconds:g} s measured a turn"
            )
            async with broker_side.started(postgres, settings) as ours, sdk_side.started(postgres, settings) as theirs:
                sides = [ours, theirs]
                for side in sides:
                    print(f"{side.name}: {side.about}")
                report(await compare(sides, options), sides)
        finally:
            await postgres.stop()


@contextmanager
def _directory() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="waystation-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)  # as root, PostgreSQL's user must pass
        yield Path(name) / "postgres"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5 repeats of 3 s: a first impression")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="measured time of one turn")
    parser.add_argument("--warmup", type=float, default=3)
    parser.add_argument("--pool-size", type=int, default=16)
    parser.add_argument(
        "--worker-concurrency", type=int, default=64, help="tasks that the broker's worker has under way"
    )
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.warmup = 3, 1
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
