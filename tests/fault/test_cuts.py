"""Hundreds of cuts at random bytes, each resumed at the other replica: the union is the log (resume-contract.md,
Transport, scenarios 3 and 5), while the log is being written and a gateway is killed.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from tests.fault.clients import log_of
from tests.fault.conftest import Pair, register
from tests.fault.cuts import READERS, CutReader
from tests.fault.replicas import Replicas
from tests.fault.scale import SCALE
from tests.support.calls import user_message
from tests.support.tokens import mint, worker_token
from tests.support.worker import artifact, status

Json = dict[str, Any]
AGENT = "clerk"
TASKS, CUTS = 3, 80 * SCALE
TEXT = "ü 漢 \U0001f600 \u2028 \x85 \r\n "
"""Characters of several bytes, so that cuts fall within them."""


@pytest.mark.slow
@pytest.mark.timeout(180 * SCALE)
async def test_streams_that_are_cut_anywhere_are_the_log(own_pair: Pair) -> None:
    register(own_pair, AGENT, leaseSeconds=60)
    urls = [broker.base_url for broker in own_pair]
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    async with Replicas(urls, mint("a")) as client, Replicas(urls, worker_token("a", AGENT)) as worker:
        tasks = [await submit(client) for _ in range(TASKS)]
        readers = [
            reader(urls, AGENT, task, CUTS, random.Random(rng.random()))
            for task in tasks
            for reader in READERS.values()
        ]
        following = [asyncio.create_task(reader.follow()) for reader in readers]
        writing = [asyncio.create_task(write(worker, readers, random.Random(rng.random()))) for _ in tasks]
        while min(reader.done for reader in readers) < CUTS // 2:
            await asyncio.sleep(0.05)
            raise_failures(following + writing)
        own_pair[1].kill()
        own_pair[1].spawn()
        await asyncio.to_thread(own_pair[1].wait_ready)
        await asyncio.gather(*writing)
        await asyncio.gather(*following)
        for reader in readers:
            reader.check(await log_of(client, reader.task))
            assert reader.done >= CUTS
            assert reader.torn >= CUTS // 4


async def submit(client: Replicas) -> str:
    body = {"message": user_message(), "configuration": {"returnImmediately": True}}
    answer = await client.call("POST", f"/agents/{AGENT}/a2a/message:send", body)
    return answer.json()["task"]["id"]


async def write(worker: Replicas, readers: Sequence[CutReader], rng: random.Random) -> None:
    """Lease a task and write to it until all readers have been cut often enough, then complete it."""
    body = {"workerId": "w", "max": 1, "waitSeconds": 20, "claimId": uuid4().hex}
    (lease,) = (await worker.call("POST", f"/v1/agents/{AGENT}/leases", body)).json()["leases"]
    path = f"/v1/leases/{lease['leaseId']}/events"
    chunks = 0
    while min(reader.done for reader in readers) < CUTS:
        events: list[Json] = []
        for _ in range(rng.randrange(1, 5)):
            events.append(
                artifact("x", TEXT * rng.randrange(1, 60), append=chunks > 0) | {"producerEventId": uuid4().hex}
            )
            chunks += 1
        if rng.random() < 0.3:
            events.append(status("WORKING", TEXT) | {"producerEventId": uuid4().hex})
        answer = await worker.call("POST", path, {"events": events})
        assert answer.status_code == 200, answer.text
        await worker.call("POST", "/v1/leases/heartbeat", {"leaseIds": [lease["leaseId"]]})
    answer = await worker.call("POST", path, {"events": [status("COMPLETED") | {"producerEventId": "end"}]})
    assert answer.json()["state"] == "TASK_STATE_COMPLETED"


def raise_failures(actors: Sequence[asyncio.Task[None]]) -> None:
    for actor in actors:
        if actor.done():
            actor.result()
