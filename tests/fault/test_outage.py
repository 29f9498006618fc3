"""PostgreSQL is killed with -9 under load and comes back (reliability.md, Promises): 503 with Retry-After at all doors,
streams that stay open and go on by seq, leases that are not lost, and nothing acknowledged that is not there.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import httpx
import pytest
import pytest_asyncio

from app.ledger.migrations import migrate
from tests.contract.doors import Door, say
from tests.fault.check import violations
from tests.fault.clients import log_of
from tests.fault.conftest import OPTIONS, Pair, register
from tests.fault.logged import RESUME_EXTENSION, parse
from tests.fault.probe import CLIENT, SOON, Probe
from tests.fault.replicas import Replicas
from tests.fault.storm import storm
from tests.fault.wire import Connection
from tests.support.broker import BrokerProcess
from tests.support.postgres import OwnPostgres
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker, artifact, status

AGENT = "patient"
LEASE_SECONDS = 3.0


def open_streams(url: str, task: str) -> list[Connection]:
    """The native stream, A2A's, and A2A's with the resume extension."""
    subscribe = f"/agents/{AGENT}/a2a/tasks/{task}:subscribe"
    resume = CLIENT | {"A2A-Extensions": RESUME_EXTENSION, "Last-Event-ID": "1.0"}
    return [
        Connection(url, f"/v1/tasks/{task}/events", CLIENT),
        Connection(url, subscribe, CLIENT),
        Connection(url, subscribe, resume),
    ]


class Held:
    """Tasks of AGENT whose leases two workers keep all the time, and streams of the first one at both replicas."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.door = Door("rest", self._pair[0].base_url, AGENT, mint("a"))
        self._workers = [await self._stack.enter_async_context(LeaseWorker(one.base_url, AGENT)) for one in self._pair]
        self.tasks = [(await self.door.send(say("go"), now=True))["id"] for _ in range(4)]
        self._leases = [await worker.lease_one() for worker in self._workers * 2]
        self.streams = [stream for one in self._pair for stream in open_streams(one.base_url, self.tasks[0])]
        for stream in self.streams:
            await self._stack.enter_async_context(stream)
            await stream.send()
            await stream.head()
            await stream.until(b"\n\n")
        self._keeping = [asyncio.create_task(self._keep(place)) for place in range(2)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for keeping in self._keeping:
            keeping.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        await self._stack.aclose()
        await self.door.http.aclose()

    def probes(self) -> list[Probe]:
        return [Probe(one, AGENT, self.tasks[0], self._leases[0]["leaseId"]) for one in self._pair]

    def poll(self) -> asyncio.Task[httpx.Response]:
        """A worker that waits for a lease."""
        body = {"workerId": "waits", "waitSeconds": 60}
        return asyncio.create_task(self._workers[1].http.post(f"/v1/agents/{AGENT}/leases", json=body))

    async def beating(self) -> None:
        """The streams say that they live."""
        for stream in self.streams:
            await asyncio.wait_for(stream.until(b": hb\n: hb\n"), SOON)
            assert not stream.ended

    async def finish(self, replicas: Replicas) -> None:
        """Each lease has outlived the outage and ends its task; the streams have gone on by seq."""
        assert not any(keeping.done() for keeping in self._keeping), "a lease was lost"
        for worker, lease in zip(self._workers * 2, self._leases, strict=True):
            await worker.write(lease, artifact("x", "late"), status("COMPLETED"))
        logs = [await log_of(replicas, lease["taskId"]) for lease in self._leases]
        for log in logs:
            assert [(event.is_claim, event.reason) for event in map(parse, log)].count((True, "")) == 1
            assert not any(event.reason for event in map(parse, log))
        log = next(log for log, lease in zip(logs, self._leases, strict=True) if lease["taskId"] == self.tasks[0])
        for stream in self.streams:
            await asyncio.wait_for(stream.rest(), SOON)
            seqs = [frame.seq for frame in stream.frames()]
            assert seqs[-2:] == [len(log) - 1, len(log)]
            assert sorted(set(seqs)) == seqs
        assert self.streams[0].frames() == log

    async def _keep(self, place: int) -> None:
        """Heartbeat as workers do: a 503 is asked again, a lost lease is a failure."""
        worker = self._workers[place]
        while True:
            answer = await worker.heartbeat(*self._leases[place::2])
            if answer.status_code != 503:
                assert answer.status_code == 200, answer.text
                assert all(result["ok"] for result in answer.json()["results"]), answer.text
            await asyncio.sleep(0.3)


@pytest_asyncio.fixture
async def pair(own_postgres: OwnPostgres, start_broker: Callable[..., BrokerProcess]) -> Pair:
    """Two replicas on a PostgreSQL of their own."""
    await migrate(own_postgres.dsn())
    options = OPTIONS | {"WAYSTATION_HEARTBEAT_SECONDS": "1"}
    pair = start_broker(own_postgres.dsn(), **options), start_broker(own_postgres.dsn(), **options)
    register(pair, AGENT, leaseSeconds=LEASE_SECONDS)
    return pair


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_postgresql_is_killed_under_load(own_postgres: OwnPostgres, pair: Pair, tmp_path: Path) -> None:
    async with (
        Held(pair) as held,
        AsyncExitStack() as stack,
        storm(pair, tmp_path, seed=2, clients=8, readers=4, workers=2) as everybody,
    ):
        probes = [await stack.enter_async_context(probe) for probe in held.probes()]
        await everybody.until_ended(20)
        poll = held.poll()
        await own_postgres.kill()
        killed = time.monotonic()
        assert (await asyncio.wait_for(poll, SOON)).status_code == 503
        await asyncio.gather(*(probe.all_unavailable() for probe in probes))
        await held.beating()
        await asyncio.gather(*(probe.becomes(ready=False) for probe in probes))
        await asyncio.sleep(max(0, killed + 2 * LEASE_SECONDS - time.monotonic()))  # all leases have run out

        await own_postgres.resume()
        assert max(await asyncio.gather(*(probe.first_success() for probe in probes))) < SOON
        await asyncio.gather(*(probe.becomes(ready=True) for probe in probes))
        await everybody.until_ended(20)
        history = await everybody.calm()
        await held.finish(everybody.replicas)
        assert (await held.door.list())["totalSize"] == len(held.tasks) + len(probes), "what was refused is not there"
    assert violations(replace(history, cancel_seconds=60, expiry_slack=60)) == []
    assert everybody.replicas.refusals > 0
