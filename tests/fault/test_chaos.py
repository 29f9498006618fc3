"""Everything at once while gateways and workers are killed with -9 or stopped; a checker judges (reliability.md)."""

import asyncio
import itertools
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fault.check import violations
from tests.fault.conftest import Pair
from tests.fault.history import UNKNOWN
from tests.fault.logged import parse
from tests.fault.scale import SCALE
from tests.fault.storm import LEASE_SECONDS, Storm, storm
from tests.support.broker import BrokerProcess

KILLS, CLIENTS, WORKERS = 20 * SCALE, 40, 4
ALIVE_SECONDS = 3.0
"""For how long at most a gateway lives between two kills."""
ALLOWANCE_SECONDS = 15.0
"""For what nobody does while there is no gateway, and what takes its time on a busy machine."""


class Killer:
    """At least KILLS gateways and as many workers, at random moments; some workers are stopped instead."""

    def __init__(self, everybody: Storm, rng: random.Random) -> None:
        self._everybody = everybody
        self._rng = rng
        self._changes: list[tuple[float, int]] = []

    async def run(self) -> None:
        gateways = self._everybody.gateways
        faults = [asyncio.create_task(self._kill_gateway(gateway, KILLS // len(gateways))) for gateway in gateways]
        killed = 0
        while killed < KILLS or not all(fault.done() for fault in faults):
            await asyncio.sleep(self._rng.uniform(0, 2))
            place = self._rng.randrange(WORKERS)
            if self._rng.random() < 0.25:
                faults.append(asyncio.create_task(self._pause_worker(place)))
            else:
                self._everybody.fleet.kill(place)
                killed += 1
            self._everybody.check_actors()
        await asyncio.gather(*faults)

    async def _kill_gateway(self, gateway: BrokerProcess, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(self._rng.uniform(0, ALIVE_SECONDS))
            gateway.kill()
            self._changes.append((time.time(), -1))
            gateway.spawn()
            await asyncio.to_thread(gateway.wait_ready)
            self._changes.append((time.time(), 1))

    async def _pause_worker(self, place: int) -> None:
        self._everybody.fleet.signal(place, signal.SIGSTOP)
        await asyncio.sleep(self._rng.uniform(0, 3 * LEASE_SECONDS))
        self._everybody.fleet.signal(place, signal.SIGCONT)

    def longest_gap(self) -> float:
        """For how many seconds at most there was no gateway at all."""
        alive, gaps = len(self._everybody.gateways), [0.0]
        for (start, change), (end, _) in itertools.pairwise(self._changes):
            alive += change
            if alive == 0:
                gaps.append(end - start)
        return max(gaps)


@pytest.mark.slow
@pytest.mark.timeout(300 * SCALE)
async def test_gateways_and_workers_are_killed_under_load(own_pair: Pair, tmp_path: Path) -> None:
    """Every acknowledged message is kept and its task ends once, in whatever the killed ones were just doing."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    async with storm(own_pair, tmp_path, seed, clients=CLIENTS, readers=8, workers=WORKERS) as everybody:
        killer = Killer(everybody, random.Random(seed))
        await killer.run()
        history = await everybody.calm()
    expiries = sum(event.reason == "LEASE_EXPIRED" for log in history.logs.values() for event in map(parse, log))
    unknown = sum(op.outcome == UNKNOWN for op in history.ops)
    print(f"{len(history.logs)} tasks, {len(history.ops)} operations ({unknown} unknown), {len(history.reads)} reads,")
    print(f"{expiries} expiries, {everybody.replicas.unanswered} tries unanswered, gap {killer.longest_gap():.1f} s")
    allowance = killer.longest_gap() + ALLOWANCE_SECONDS
    assert violations(replace(history, cancel_seconds=allowance, expiry_slack=allowance)) == []
    assert min(len(history.logs), len(history.reads)) > CLIENTS * SCALE
    assert min(expiries, unknown, everybody.replicas.unanswered) > 0, "the kills have hit nobody"
