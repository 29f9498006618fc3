"""SIGTERM to a replica with everything open (reliability.md, Shutdown): all is ended in good order, and nobody loses an
event; and rolling restarts under load.
"""

import asyncio
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import asyncpg
import httpx
import pytest

from tests.contract.doors import Door, say, state
from tests.fault.check import violations
from tests.fault.clients import log_of
from tests.fault.conftest import Pair, register
from tests.fault.history import Frame
from tests.fault.logged import HIDDEN, RESUME_EXTENSION
from tests.fault.replicas import Replicas
from tests.fault.scale import SCALE
from tests.fault.storm import storm
from tests.fault.watching import gauge, until
from tests.fault.wire import Connection
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, artifact, status

AGENT = "clerk"
STOP_SECONDS = 10.0
"""6 s are promised, for a machine that has nothing else to do."""
KINDS = ("native", "resume")
RETRY = re.compile(rb"retry: (\d+)\n\Z")
HEADERS = bearer(mint("a")) | {"A2A-Version": "1.0"}


def stream(kind: str, url: str, task: str, cursor: int) -> Connection:
    if kind == "native":
        return Connection(url, f"/v1/tasks/{task}/events", HEADERS | {"Last-Event-ID": f"1.{cursor}"})
    headers = HEADERS | {"A2A-Extensions": RESUME_EXTENSION, "Last-Event-ID": f"1.{cursor}"}
    return Connection(url, f"/agents/{AGENT}/a2a/tasks/{task}:subscribe", headers)


async def readiness(broker: BrokerProcess, answers: list[tuple[float, int, list[str]]]) -> None:
    """Ask until nobody listens any more: when each question was asked, and the answer's status and reasons."""
    async with httpx.AsyncClient(base_url=broker.base_url, trust_env=False, timeout=5) as client:
        while True:
            start = time.monotonic()
            try:
                answer = await client.get("/readyz")
            except httpx.TransportError:
                return
            answers.append((start, answer.status_code, answer.json()["reasons"]))


class Waiting:
    """Everything that can wait at a replica, opened at the first one: streams of two leased tasks, a worker's poll and
    its heartbeat, and a sender."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        door = Door("rest", self._pair[0].base_url, AGENT, mint("a"))
        self._stack.push_async_callback(door.http.aclose)
        here, self.there = [
            await self._stack.enter_async_context(LeaseWorker(one.base_url, AGENT)) for one in self._pair
        ]
        self.replicas = await self._stack.enter_async_context(Replicas([self._pair[1].base_url], mint("a")))
        tasks = [(await door.send(say("go"), now=True))["id"] for _ in range(2)]
        self.idle, self.busy = await self.there.lease(max=2)
        self.streams = [
            (kind, task, stream(kind, self._pair[0].base_url, task, 0)) for kind in KINDS for task in tasks * 5
        ]
        for _, _, one in self.streams:
            await self._stack.enter_async_context(one)
            await one.send()
            await one.head()
            await one.until(b"\n\n")
        self.poll = asyncio.create_task(here.lease(wait=60))
        self.beat = asyncio.create_task(here.heartbeat(self.idle, waitSeconds=20))
        self.sender = asyncio.create_task(door.send(say("waits", taskId=self.idle["taskId"])))
        await until(lambda: gauge(self._pair[0], "pollers_waiting") == 1)
        async with asyncio.timeout(10):
            while not any(frame.event == "message.user" for frame in await self.log(self.idle["taskId"])):
                await asyncio.sleep(0.02)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def log(self, task: str) -> list[Frame]:
        return await log_of(self.replicas, task)

    async def write(self, stop: asyncio.Event) -> None:
        """To the busy task, until told to stop; then both tasks are completed, and the sender's turn."""
        number = 0
        while not stop.is_set():
            await self.there.write(self.busy, artifact("x", f"{number};", append=number > 0))
            number += 1
        for lease in (self.busy, self.idle):
            await self.there.write(lease, status("COMPLETED"))
        await self.there.write(await self.there.lease_one(), status("COMPLETED"))

    async def ends(self) -> list[float]:
        """When each of the streams was ended, with a ``retry:`` as its last line."""

        async def end(one: Connection) -> float:
            await one.rest()
            last = RETRY.search(one.body)
            assert last, one.body[-200:]
            assert 500 <= int(last[1]) <= 3000
            return time.monotonic()

        return await asyncio.gather(*(end(one) for _, _, one in self.streams))

    async def resumed(self) -> None:
        """Every stream goes on at the other replica where it was ended, and has missed nothing."""
        for kind, task, one in self.streams:
            frames = one.frames()
            cursor = max(frame.seq for frame in frames)
            async with stream(kind, self._pair[1].base_url, task, cursor) as other:
                await other.send()
                await other.head()
                await other.rest()
            seqs = [frame.seq for frame in (*frames, *other.frames()) if frame.seq]
            log = await self.log(task)
            assert seqs == [frame.seq for frame in log if kind == "native" or frame.event not in HIDDEN]


@pytest.mark.slow
async def test_everything_that_waits_is_ended_in_good_order(own_pair: Pair) -> None:
    register(own_pair, AGENT, leaseSeconds=60)
    async with Waiting(own_pair) as waiting:
        stop = asyncio.Event()
        writing = asyncio.create_task(waiting.write(stop))
        answers: list[tuple[float, int, list[str]]] = []
        asking = asyncio.create_task(readiness(own_pair[0], answers))
        await until(lambda: len(answers) > 1)
        start = time.monotonic()
        stopping = asyncio.create_task(asyncio.to_thread(own_pair[0].terminate))
        ended = await waiting.ends()
        assert await stopping == 0
        assert time.monotonic() - start < STOP_SECONDS
        await asking
        assert {status for asked, status, _ in answers if asked < start} == {200}
        assert {(status, *reasons) for asked, status, reasons in answers if asked > min(ended)} <= {(503, "draining")}
        assert await waiting.poll == []
        assert (await waiting.beat).json()["results"][0]["ok"]
        assert state(await waiting.sender) == "WORKING", "the task as it stands"
        stop.set()
        await writing
        await waiting.resumed()


@pytest.mark.slow
@pytest.mark.timeout(180 * SCALE)
async def test_rolling_restarts_under_load(own_pair: Pair, tmp_path: Path) -> None:
    """No lost event and no 5xx: whoever is answered is answered well."""
    async with storm(own_pair, tmp_path, seed=3, clients=20, readers=10, workers=4) as everybody:
        for gateway in own_pair * SCALE:
            await everybody.until_ended(20)
            start = time.monotonic()
            assert await asyncio.to_thread(gateway.terminate) == 0
            assert time.monotonic() - start < STOP_SECONDS
            await everybody.until_ended(5)
            gateway.spawn()
            await asyncio.to_thread(gateway.wait_ready)
        history = await everybody.calm()
    assert violations(history) == []
    assert everybody.replicas.refusals == 0


async def test_a_claim_under_way_does_not_keep_the_process(own_pair: Pair, database_url: str) -> None:
    """SIGTERM while a claim that will find nothing is at the database: its poller must not go on waiting."""
    register(own_pair, AGENT)
    admin = await asyncpg.connect(database_url)
    async with LeaseWorker(own_pair[0].base_url, AGENT) as worker:
        async with admin.transaction():
            await admin.execute("LOCK TABLE lanes IN ACCESS EXCLUSIVE MODE")
            poll = asyncio.create_task(worker.lease(wait=60))
            async with asyncio.timeout(4):  # statements give up after 5 s
                while not await admin.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.02)
                start = time.monotonic()
                stopping = asyncio.create_task(asyncio.to_thread(own_pair[0].terminate))
                while await is_ready(own_pair[0]):
                    await asyncio.sleep(0.02)
        assert await poll == []
        assert await stopping == 0
        assert time.monotonic() - start < STOP_SECONDS
    await admin.close()


async def is_ready(broker: BrokerProcess) -> bool:
    async with httpx.AsyncClient(base_url=broker.base_url, trust_env=False, timeout=5) as client:
        try:
            return (await client.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False
