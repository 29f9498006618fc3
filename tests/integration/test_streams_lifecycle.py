"""How streams begin, wait and end: caps, lost peers, recycling, token expiry, drain, a database that goes away."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from app.ledger.migrations import migrate
from tests.contract.doors import Door, DoorError, say, short
from tests.integration.raw_http import RawStream
from tests.support.broker import BrokerProcess
from tests.support.postgres import OwnPostgres
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, artifact, status

pytestmark = pytest.mark.usefixtures("database_url")  # made before a test's event loop runs
RETRY = re.compile(rb"retry: (\d+)\n")


def headers(**claims: Any) -> dict[str, str]:
    return bearer(mint("a", **claims)) | {"A2A-Version": "1.0"}


async def new_task(broker: BrokerProcess) -> str:
    async with Door("rest", broker.base_url, "clerk", mint("a")) as door:
        return (await door.send(say("go"), now=True))["id"]


def open_streams(broker: BrokerProcess) -> int:
    """The gauge, as Prometheus sees it."""
    answer = httpx.get(f"{broker.base_url}/metrics", headers=bearer(mint("ops", scope="metrics:read")), trust_env=False)
    (value,) = re.findall(r"^waystation_streams_open (\S+)$", answer.text, re.MULTILINE)
    return int(float(value))


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for a condition that another process brings about."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)


async def until_async(condition: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


async def test_caps_per_subject_tenant_and_replica(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(
        WAYSTATION_MAX_STREAMS="4", WAYSTATION_MAX_STREAMS_PER_TENANT="3", WAYSTATION_MAX_STREAMS_PER_SUBJECT="2"
    )
    broker.register_agent("clerk", visibility="shared", sharedWith=["*"])
    task_id = await new_task(broker)
    path = f"/v1/tasks/{task_id}/events"
    held: list[RawStream] = []

    async def take(subject: str, tenant: str = "a") -> int:
        where = path if tenant == "a" else f"/v1/tasks/{other}/events"
        stream = RawStream(broker.base_url, "GET", where, bearer(mint(tenant, subject)))
        held.append(await stream.__aenter__())
        await stream.head()
        if stream.status == 429:
            assert 1 <= int(stream.headers["retry-after"]) <= 5
        else:
            await stream.until(b"\n\n")
        return stream.status

    door = Door("jsonrpc", broker.base_url, "clerk", mint("b"))
    other = (await door.send(say("go"), now=True))["id"]
    assert [await take("u1"), await take("u1"), await take("u1")] == [200, 200, 429]
    assert [await take("u2"), await take("u3")] == [200, 429]
    assert [await take("u1", "b"), await take("u2", "b")] == [200, 429]
    assert open_streams(broker) == 4
    with pytest.raises(DoorError, match="RESOURCE_EXHAUSTED"):
        async with door.open("SendStreamingMessage", {"message": say("not stored")}):
            pass
    assert (await door.list())["totalSize"] == 1
    for stream in held:
        await stream.__aexit__()
    await until(lambda: open_streams(broker) == 0)
    assert await take("u1") == 200
    await held[-1].__aexit__()
    await door.http.aclose()


async def test_stemdeck_532_a_reset_before_the_first_byte_leaks_no_slot(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    broker.register_agent("clerk")
    task_id = await new_task(broker)
    for number in range(200):
        stream = RawStream(broker.base_url, "GET", f"/v1/tasks/{task_id}/events", headers(sub=f"u{number}"))
        async with stream:
            if number % 2:
                await stream.head()
            stream.reset()
    await until(lambda: open_streams(broker) == 0)
    async with RawStream(broker.base_url, "GET", f"/v1/tasks/{task_id}/events", headers()) as stream:
        await stream.head()
        assert stream.status == 200
    await until(lambda: open_streams(broker) == 0)


async def test_a_stream_is_recycled_with_retry(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(WAYSTATION_STREAM_RECYCLE_SECONDS="1")
    broker.register_agent("clerk")
    path = f"/v1/tasks/{await new_task(broker)}/events"
    async with RawStream(broker.base_url, "GET", path, headers()) as stream:
        await stream.head()
        await stream.until(b"\n\n")
        last = RETRY.fullmatch(await stream.rest(5))
    assert last, "the last bytes are retry:, so the client comes back"
    assert 1600 <= int(last[1]) <= 2400


async def test_a_stream_ends_with_its_token(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    broker.register_agent("clerk")
    path = f"/v1/tasks/{await new_task(broker)}/events"
    ends = int(time.time()) + 3
    async with RawStream(broker.base_url, "GET", path, headers(exp=ends)) as stream:
        await stream.head()
        await stream.until(b"\n\n")
        assert RETRY.fullmatch(await stream.rest(10))
        assert ends - 0.1 <= time.time() <= ends + 3


async def test_a_stopping_broker_says_retry_and_is_gone_soon(start_broker: Callable[..., BrokerProcess]) -> None:
    """reliability.md, Shutdown: streams end within 5 s; the client goes on at another replica, by seq."""
    broker = start_broker()
    broker.register_agent("clerk")
    other = start_broker(broker.database_url)
    task_id = await new_task(broker)
    path = f"/v1/tasks/{task_id}/events"
    streams = [RawStream(broker.base_url, "GET", path, headers(sub=f"u{number // 10}")) for number in range(50)]
    for stream in streams:
        await stream.__aenter__()
        await stream.head()
        await stream.until(b"\n\n")
    start = time.monotonic()
    code = await asyncio.to_thread(broker.terminate, 10)
    assert (code, time.monotonic() - start < 6) == (0, True)
    waits: list[int] = []
    for stream in streams:
        match = RETRY.fullmatch((await stream.rest()).replace(b": hb\n", b""))
        assert match
        waits.append(int(match[1]))
        await stream.__aexit__()
    assert min(waits) >= 500
    assert max(waits) <= 3000
    assert len(set(waits)) > 10, "spread out, so that they do not all come at once"
    async with RawStream(other.base_url, "GET", path, headers() | {"Last-Event-ID": "1.1"}) as stream:
        await stream.head()
        async with Door("rest", other.base_url, "clerk", mint("a")) as door:
            await door.cancel(task_id)
        assert b"id: 1.2\n" in await stream.rest()


async def test_a_blocking_send_is_answered_when_the_broker_stops(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    broker.register_agent("clerk")
    door = Door("jsonrpc", broker.base_url, "clerk", mint("a"))
    sending = asyncio.create_task(door.send(say("go")))

    async def arrived() -> bool:
        return (await door.list())["totalSize"] == 1

    await until_async(arrived)
    stopping = asyncio.create_task(asyncio.to_thread(broker.terminate, 15))
    assert (await sending)["status"]["state"] == "TASK_STATE_SUBMITTED"
    await door.http.aclose()
    assert await stopping == 0


async def test_a_waiting_stream_holds_no_connection(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(WAYSTATION_POOL_SIZE="2")
    broker.register_agent("clerk")
    task_id = await new_task(broker)
    streams: list[RawStream] = []
    for _ in range(15):
        stream = await RawStream(broker.base_url, "GET", f"/v1/tasks/{task_id}/events", headers()).__aenter__()
        streams.append(stream)
        await stream.head()
        await stream.until(b"\n\n")
    door = Door("jsonrpc", broker.base_url, "clerk", mint("a"))
    async with asyncio.timeout(5):
        for _ in range(10):
            await door.get(task_id)
    await door.cancel(task_id)
    for stream in streams:
        assert b"TASK_STATE_CANCELED" in await stream.rest()
        await stream.__aexit__()
    await door.http.aclose()


async def test_a_stream_outlives_the_database_and_goes_on_by_seq(
    own_postgres: OwnPostgres, start_broker: Callable[..., BrokerProcess]
) -> None:
    """reliability.md, Promises: streams stay open with heartbeats; calls are 503 with Retry-After within 3 s."""
    await migrate(own_postgres.dsn())
    broker = start_broker(own_postgres.dsn(), WAYSTATION_HEARTBEAT_SECONDS="1.2")
    broker.register_agent("clerk")
    task_id = await new_task(broker)
    rpc, rest = (Door(name, broker.base_url, "clerk", mint("a")) for name in ("jsonrpc", "rest"))
    message = say("kept for later")
    async with RawStream(broker.base_url, "GET", f"/v1/tasks/{task_id}/events", headers()) as stream:
        await stream.head()
        await stream.until(b"\n\n")
        await own_postgres.kill()
        await stream.until(b": hb\n")
        await stream.until(b": hb\n")
        for door in (rpc, rest):
            start = time.monotonic()
            with pytest.raises(DoorError, match="UNAVAILABLE") as caught:
                await door.send(message, now=True)
            assert time.monotonic() - start < 4
            assert 1 <= int(caught.value.response.headers["retry-after"]) <= 5
        with pytest.raises(DoorError, match="UNAVAILABLE"):
            async with rpc.open("SubscribeToTask", {"id": task_id}):
                pass
        await own_postgres.resume()

        async def stored() -> bool:
            try:
                return bool(await rest.send(message, now=True))
            except DoorError:
                return False

        await until_async(stored, 20)
        await rpc.cancel(task_id)
        assert b"id: 1.2\n" in await stream.rest(20)
    assert (await rest.list())["totalSize"] == 2, "one task of the message, however often it was sent"
    for door in (rpc, rest):
        await door.http.aclose()


async def test_scenario_14_losing_all_streams_cancels_nothing(broker: BrokerProcess) -> None:
    broker.register_agent("clerk")
    door = Door("rest", broker.base_url, "clerk", mint("a"))
    async with door.open("SendStreamingMessage", {"message": say("go")}) as stream:
        task_id = (await stream.next() or {})["task"]["id"]
    await until(lambda: open_streams(broker) == 0)
    async with LeaseWorker(broker.base_url, "clerk") as worker:
        await worker.write(await worker.lease_one(), artifact("x", "y"), status("COMPLETED"))
    assert (await door.get(task_id))["status"]["state"] == "TASK_STATE_COMPLETED"
    await door.http.aclose()


async def test_scenario_4_an_event_between_subscribe_and_first_read_comes_once(broker: BrokerProcess) -> None:
    broker.register_agent("clerk")
    door = Door("jsonrpc", broker.base_url, "clerk", mint("a"))
    task = await door.send(say("go"), now=True)
    async with LeaseWorker(broker.base_url, "clerk") as worker:
        lease = await worker.lease_one()

        async def write() -> None:
            for number in range(60):
                await worker.write(lease, artifact("x", f"{number};", append=number > 0))
            await worker.write(lease, status("COMPLETED"))

        async def subscribe() -> str | None:
            """The artifact as the snapshot and the tail give it together; None for one who came after the end."""
            try:
                return await read()
            except DoorError as error:
                if error.reason != "UNSUPPORTED_OPERATION":
                    raise
                return None

        async def read() -> str:
            async with door.open("SubscribeToTask", {"id": task["id"]}) as stream:
                first = (await stream.next() or {})["task"]
                text = "".join(part["text"] for artifact in first.get("artifacts", []) for part in artifact["parts"])
                for item in await stream.rest(30):
                    if short(item) != "COMPLETED" and "artifactUpdate" in item:
                        text += "".join(part["text"] for part in item["artifactUpdate"]["artifact"]["parts"])
                return text

        writing = asyncio.create_task(write())
        readers: list[asyncio.Task[str | None]] = []
        while not writing.done() and len(readers) < 15:
            readers.append(asyncio.create_task(subscribe()))
            await asyncio.sleep(0.02)
        await writing
        assert {await reader for reader in readers} - {None} == {"".join(f"{number};" for number in range(60))}
    await door.http.aclose()


@pytest.mark.slow
async def test_a_reader_that_takes_nothing_is_cut_off(broker: BrokerProcess) -> None:
    """security.md, Streams: send time-out 15 s; the others notice nothing."""
    broker.register_agent("clerk")
    door = Door("rest", broker.base_url, "clerk", mint("a"))
    task = await door.send(say("go"), now=True)
    async with LeaseWorker(broker.base_url, "clerk") as worker:
        lease = await worker.lease_one()
        async with RawStream(broker.base_url, "GET", f"/v1/tasks/{task['id']}/events", headers()) as stalled:
            await stalled.head()
            await stalled.until(b"\n\n")
            for number in range(12):
                await worker.write(lease, artifact(f"x{number}", "x" * 1_000_000))
                await worker.heartbeat(lease)
            assert open_streams(broker) == 1
            await until(lambda: open_streams(broker) == 0, 40)
        await worker.write(lease, status("COMPLETED"))
    answer = await door.http.get(f"/v1/tasks/{task['id']}/events")
    assert answer.text.count("event: artifact") == 12
    await door.http.aclose()
