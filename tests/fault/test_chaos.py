"""Everything at once while gateways and workers are killed with -9 (reliability.md, T1), judged by the checker."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.fault.check import violations
from tests.fault.conftest import Pair
from tests.fault.scale import SCALE
from tests.fault.storm import storm
from tests.support.broker import BrokerProcess

KILLS = 20 * SCALE


@pytest.mark.slow
@pytest.mark.timeout(300 * SCALE)
async def test_gateways_and_workers_are_killed_under_load(own_pair: Pair, tmp_path: Path) -> None:
    """Every acknowledged message is kept and its task ends once, in whatever the killed ones were just doing."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    async with storm(own_pair, tmp_path, seed, clients=40, readers=8, workers=4) as everybody:

        async def kill_gateway(gateway: BrokerProcess) -> None:
            for _ in range(KILLS // len(own_pair)):
                await asyncio.sleep(rng.uniform(0, 1))
                gateway.kill()
                gateway.spawn()
                await asyncio.to_thread(gateway.wait_ready)

        killing = [asyncio.create_task(kill_gateway(gateway)) for gateway in own_pair]
        killed = 0
        while killed < KILLS or not all(one.done() for one in killing):
            await asyncio.sleep(rng.uniform(0, 2))
            everybody.fleet.kill(rng.randrange(4))
            killed += 1
            everybody.check_actors()
        await asyncio.gather(*killing)
        history = await everybody.calm()
    assert violations(history) == []
    print(f"{len(history.logs)} tasks, {len(history.ops)} operations, {len(history.reads)} reads")
    assert len(history.logs) > 20 * SCALE
    assert everybody.replicas.unanswered > 0
