"""Peers that go without a word, or stay and take nothing: no slot leaks, nobody else waits (stemdeck#532)."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.contract.doors import Door, say
from tests.fault.conftest import Pair, register
from tests.fault.watching import gauge, until
from tests.fault.wire import Connection
from tests.support.tokens import bearer, mint, worker_token
from tests.support.worker import LeaseWorker, artifact, status

Json = dict[str, Any]
HEADERS = bearer(mint("a")) | {"A2A-Version": "1.0"}
Request = Callable[[str, str, str], Connection]


def native(url: str, _agent: str, task: str) -> Connection:
    return Connection(url, f"/v1/tasks/{task}/events", HEADERS)


def subscribe(url: str, agent: str, task: str) -> Connection:
    return Connection(url, f"/agents/{agent}/a2a/tasks/{task}:subscribe", HEADERS)


def subscribe_rpc(url: str, agent: str, task: str) -> Connection:
    return rpc(url, agent, "SubscribeToTask", {"id": task})


def send(url: str, agent: str, _task: str) -> Connection:
    return rpc(url, agent, "SendStreamingMessage", {"message": say("go")})


def send_rest(url: str, agent: str, _task: str) -> Connection:
    return Connection(url, f"/agents/{agent}/a2a/message:stream", HEADERS, json.dumps({"message": say("go")}).encode())


def rpc(url: str, agent: str, method: str, params: Json) -> Connection:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return Connection(url, f"/agents/{agent}/rpc", HEADERS, json.dumps(body).encode())


STREAMS: list[Request] = [native, subscribe, subscribe_rpc, send, send_rest]


@pytest.fixture
def agent(replicas: Pair) -> str:
    name = f"agent-{uuid4().hex[:8]}"
    register(replicas, name, leaseSeconds=120)
    return name


@pytest_asyncio.fixture
async def task(replicas: Pair, agent: str) -> AsyncIterator[str]:
    door = Door("rest", replicas[0].base_url, agent, mint("a"))
    yield (await door.send(say("go"), now=True))["id"]
    await door.http.aclose()


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.__name__)
async def test_resets_before_the_first_byte_leak_no_slot(
    replicas: Pair, agent: str, task: str, stream: Request
) -> None:
    """Two hundred of each kind: some in the middle of the request, some before, some after the answer has begun."""
    rng = random.Random()
    broker = replicas[1]
    for number in range(100):
        async with stream(broker.base_url, agent, task) as connection:
            await connection.send(rng.randrange(len(connection.request)) if number % 4 == 0 else None)
            await asyncio.sleep(rng.uniform(0, 0.01))
            connection.reset()
    await until(lambda: gauge(broker, "streams_open") == 0)
    async with AsyncExitStack() as stack:
        unread = [await stack.enter_async_context(stream(broker.base_url, agent, task)) for _ in range(100)]
        await asyncio.gather(*(connection.send() for connection in unread))
        await until(lambda: gauge(broker, "streams_open") == 100)
        for connection in unread:
            connection.reset()
    await until(lambda: gauge(broker, "streams_open") == 0)


@pytest.mark.parametrize("racing", [False, True])
async def test_lost_pollers_keep_no_task(replicas: Pair, agent: str, racing: bool) -> None:
    """Fifty long polls at each replica are cut. Of the tasks that come afterwards they get none; of those that come
    meanwhile (``racing``) what was on its way to one that has gone comes back, or its lease expires."""
    register(replicas, agent, leaseSeconds=1)
    headers = bearer(worker_token("a", agent))
    body = json.dumps({"workerId": "gone", "waitSeconds": 60}).encode()
    door = Door("rest", replicas[0].base_url, agent, mint("a"))
    async with AsyncExitStack() as stack, LeaseWorker(replicas[1].base_url, agent) as worker, asyncio.timeout(40):
        polls = [
            await stack.enter_async_context(Connection(broker.base_url, f"/v1/agents/{agent}/leases", headers, body))
            for broker in replicas * 50
        ]
        await asyncio.gather(*(poll.send() for poll in polls))
        await until(lambda: [gauge(broker, "pollers_waiting") for broker in replicas] == [50, 50])
        sending = [asyncio.create_task(door.send(say("go"), now=True)) for _ in range(20 if racing else 0)]
        for poll in polls:
            poll.reset()
            await asyncio.sleep(0.001 if racing else 0)
        sending += [asyncio.create_task(door.send(say("go"), now=True)) for _ in range(0 if racing else 20)]
        tasks = {(await sent)["id"] for sent in sending}
        while tasks:
            for lease in await worker.lease(max=100, wait=2, leaseSeconds=60):
                assert lease["attempt"] in ({1, 2} if racing else {1})
                tasks.remove(lease["taskId"])
        await until(lambda: [gauge(broker, "pollers_waiting") for broker in replicas] == [0, 0])
    await door.http.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("stream", [native, subscribe, subscribe_rpc], ids=lambda stream: stream.__name__)
async def test_a_reader_that_takes_nothing_keeps_nobody_waiting(
    replicas: Pair, agent: str, task: str, stream: Request
) -> None:
    broker = replicas[0]
    async with LeaseWorker(broker.base_url, agent) as worker, AsyncExitStack() as stack:
        lease = await worker.lease_one()
        stalled = [stream(broker.base_url, agent, task) for _ in range(4)]
        for connection in stalled:
            connection.receive_buffer = 4096
            await stack.enter_async_context(connection)
            await connection.send()
        reader = await stack.enter_async_context(stream(broker.base_url, agent, task))
        await reader.send()
        await until(lambda: gauge(broker, "streams_open") == 5)
        reading = asyncio.create_task(read_all(reader))
        for number in range(12):
            await worker.write(lease, artifact(f"x{number}", "x" * 1_000_000))
        await worker.write(lease, status("COMPLETED"))
        assert await asyncio.wait_for(reading, 30) >= 12_000_000
        assert gauge(broker, "streams_open") == 4, "they are stuck, or this has proved nothing"
        for connection in stalled:
            connection.reset()
    await until(lambda: gauge(broker, "streams_open") == 0)


async def read_all(connection: Connection) -> int:
    await connection.head()
    await connection.rest()
    return len(connection.body)
