"""CancelTask against COMPLETED from two replicas at once (resume-contract.md, Cancel against complete, scenario 21)."""

import asyncio
import json
import random
from collections import Counter
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.contract.doors import Door, DoorError, say
from tests.fault.clients import log_of
from tests.fault.conftest import Pair, register
from tests.fault.replicas import Replicas
from tests.fault.scale import SCALE
from tests.support.calls import info
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker, artifact, status

Json = dict[str, Any]
PAIRS = 500 * SCALE
AT_ONCE = 16


@pytest.mark.slow
@pytest.mark.timeout(180 * SCALE)
async def test_five_hundred_cancels_against_completions(replicas: Pair) -> None:
    """One terminal event each, both sides told the truth, and nothing after it."""
    agent = f"agent-{uuid4().hex[:8]}"
    register(replicas, agent, cancelGraceSeconds=0, leaseSeconds=120)
    race = Race(replicas, agent)
    async with race:
        await race.submit(PAIRS)
        leases = [lease for worker in race.workers for lease in await race.lease(worker)]
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(lease: Json) -> str:
            async with gate:
                return await race.run(lease)

        winners = Counter(await asyncio.gather(*map(one, leases)))
    print(winners)
    assert winners.total() == PAIRS
    assert min(winners["TASK_STATE_CANCELED"], winners["TASK_STATE_COMPLETED"]) > PAIRS // 20, "it was no race"


class Race:
    """Doors of both kinds and workers at both replicas. Use as an async context manager."""

    def __init__(self, pair: Pair, agent: str) -> None:
        urls = [broker.base_url for broker in pair]
        self.replicas = Replicas(urls, mint("a"))
        self.doors = [Door(name, url, agent, mint("a")) for url in urls for name in ("jsonrpc", "rest")]
        self.workers = [LeaseWorker(url, agent) for url in urls]
        self.rng = random.Random()

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        for client in (*(door.http for door in self.doors), *(worker.http for worker in self.workers)):
            await client.aclose()
        await self.replicas.__aexit__(None, None, None)

    async def submit(self, count: int) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with gate:
                await self.doors[number % 4].send(say("go"), now=True)

        await asyncio.gather(*map(one, range(count)))

    async def lease(self, worker: LeaseWorker) -> list[Json]:
        """All that are there, each with its worker's replica as ``at``; the two workers share them."""
        leases: list[Json] = []
        while found := await worker.lease(max=50, wait=0):
            leases += found
        return [lease | {"at": self.workers.index(worker)} for lease in leases]
