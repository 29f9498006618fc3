"""Everything at once while gateways and workers are killed with -9 or stopped; a checker judges (reliability.md)."""

import asyncio
import random
import signal
from pathlib import Path

import pytest

from tests.fault.check import violations
from tests.fault.conftest import Pair
from tests.fault.history import UNKNOWN
from tests.fault.logged import parse
from tests.fault.scale import SCALE
from tests.fault.storm import storm
from tests.support.broker import BrokerProcess

KILLS, CLIENTS, WORKERS = 20 * SCALE, 40, 4


@pytest.mark.slow
@pytest.mark.timeout(300 * SCALE)
async def test_gateways_and_workers_are_killed_under_load(own_pair: Pair, tmp_path: Path) -> None:
    """Every acknowledged message is kept and its task ends once, in whatever the killed ones were just doing."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    async with storm(own_pair, tmp_path, seed, clients=CLIENTS, readers=8, workers=WORKERS) as everybody:

        async def kill_gateway(gateway: BrokerProcess) -> None:
            for _ in range(KILLS // len(own_pair)):
                await asyncio.sleep(rng.uniform(0, 3))
                gateway.kill()
                gateway.spawn()
                await asyncio.to_thread(gateway.wait_ready)

        async def pause_worker(place: int) -> None:
            everybody.fleet.signal(place, signal.SIGSTOP)
            await asyncio.sleep(rng.uniform(0, 3))  # its leases last for one second
            everybody.fleet.signal(place, signal.SIGCONT)

        faults = [asyncio.create_task(kill_gateway(gateway)) for gateway in own_pair]
        killed = 0
        while killed < KILLS or not all(fault.done() for fault in faults):
            await asyncio.sleep(rng.uniform(0, 2))
            if rng.random() < 0.25:
                faults.append(asyncio.create_task(pause_worker(rng.randrange(WORKERS))))
            else:
                everybody.fleet.kill(rng.randrange(WORKERS))
                killed += 1
            everybody.check_actors()
        await asyncio.gather(*faults)
        history = await everybody.calm()
    expiries = sum(event.reason == "LEASE_EXPIRED" for log in history.logs.values() for event in map(parse, log))
    unknown = sum(op.outcome == UNKNOWN for op in history.ops)
    print(f"{len(history.logs)} tasks, {len(history.ops)} operations ({unknown} unknown), {len(history.reads)} reads,")
    print(
        f"{expiries} expiries, {everybody.replicas.unanswered} tries unanswered, {everybody.replicas.refusals} refused"
    )
    assert violations(history) == []
    assert min(len(history.logs), len(history.reads)) > CLIENTS * SCALE
    assert min(expiries, unknown, everybody.replicas.unanswered) > 0, "the kills have hit nobody"
