"""Streams over gRPC: order, resume, caps, and every way in which one ends (docs/decisions/grpc-stream-ends.md)."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest

from tests.contract.doors import DoorError, say, short, state
from tests.contract.grpc_door import RESUME, GrpcDoor, GrpcStream
from tests.integration.grpc.conftest import At, StartBroker, start
from tests.support.broker import BrokerProcess
from tests.support.calls import native_events
from tests.support.tokens import bearer, mint
from tests.support.worker import artifact, status

pytestmark = pytest.mark.usefixtures("database_url")  # made before a test's event loop runs


def open_streams(broker: BrokerProcess) -> int:
    """The gauge, as Prometheus sees it."""
    answer = httpx.get(f"{broker.base_url}/metrics", headers=bearer(mint("ops", scope="metrics:read")), trust_env=False)
    (value,) = re.findall(r"^waystation_streams_open (\S+)$", answer.text, re.MULTILINE)
    return int(float(value))


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


async def none_open(broker: BrokerProcess) -> bool:
    return await asyncio.to_thread(open_streams, broker) == 0


async def last_words(door: GrpcDoor, stream: GrpcStream, seconds: float = 20) -> tuple[DoorError, float]:
    """How a stream ended before its task, and after how many seconds to come back (0 = it does not say)."""
    with pytest.raises(DoorError) as caught:
        await stream.rest(seconds)
    delays = [detail["retryDelay"] for detail in door.details if detail["@type"].endswith("RetryInfo")]
    return caught.value, float(delays[0].removesuffix("s")) if delays else 0


async def test_a_stream_is_the_log_in_its_order(at: At) -> None:
    door = at.door()
    async with door.open("SendStreamingMessage", {"message": say("go")}) as stream:
        task_id = ((await stream.next()) or {})["task"]["id"]
        async with at.worker() as worker:
            lease = await worker.lease_one()
            for number in range(150):
                await worker.write(lease, artifact("x", f"{number};", append=number > 0))
            await worker.write(lease, status("COMPLETED", "done"))
        items = await stream.rest(30)
    events = [
        event
        for event in await native_events(at.rest().http, task_id)
        if "statusUpdate" in event or "artifactUpdate" in event
    ]
    shown = [event["kind"] not in ("turn.started", "message.user") for event in events]
    assert len(items) == sum(shown) == 152
    assert [short(item) for item in items] == [short(event) for event, seen in zip(events, shown, strict=True) if seen]


async def test_resume_after_a_cursor_in_metadata(at: At) -> None:
    """resume-contract.md: a Task frame, then exactly what follows the cursor; it stands in each item's metadata."""
    door = at.door()
    async with door.open("SendStreamingMessage", {"message": say("go")}, a2a_extensions=RESUME) as stream:
        first = await stream.next_frame()
        assert first is not None
        assert first.id == "1.1"
        task_id = first.data["task"]["id"]
        async with at.worker() as worker:
            lease = await worker.lease_one()
            await worker.write(lease, artifact("x", "A"), artifact("x", "B", append=True))
            frames = [await stream.next_frame() for _ in range(3)]
            assert [short(frame.data) for frame in frames if frame] == ["WORKING", "x=A", "x+B"]
            cursor = (frames[1] and frames[1].id) or ""
            await worker.write(lease, status("COMPLETED"))
        await stream.rest()
    for headers in ({"last_event_id": cursor}, {"last_event_id": cursor.partition(".")[2]}):
        async with door.open("SubscribeToTask", {"id": task_id}, a2a_extensions=RESUME, **headers) as again:
            snapshot = await again.next_frame()
            assert snapshot is not None
            assert (short(snapshot.data), snapshot.id) == ("task COMPLETED", None)
            assert [short(item) for item in await again.rest()] == ["x+B", "COMPLETED"]
    for cursor, reason in (("garbage", "INVALID_PARAMS"), ("1.99", "UNSUPPORTED_OPERATION")):
        with pytest.raises(DoorError, match=reason):
            async with door.open("SubscribeToTask", {"id": task_id}, a2a_extensions=RESUME, last_event_id=cursor):
                pass


async def test_without_the_extension_items_are_the_stored_ones(at: At) -> None:
    async with at.door().open("SendStreamingMessage", {"message": say("go")}) as stream:
        assert "lastEventId" not in str(await stream.next())


async def test_a2a_java_754_a_subscription_stays_open_at_input_required(at: At) -> None:
    door = at.door()
    async with door.open("SendStreamingMessage", {"message": say("go")}) as stream, at.worker() as worker:
        task_id = (await stream.next() or {})["task"]["id"]
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED"))
        assert [short(item) for item in await stream.rest()] == ["WORKING", "INPUT_REQUIRED"]
        async with door.open("SubscribeToTask", {"id": task_id}) as subscription:
            assert short(await subscription.next() or {}) == "task INPUT_REQUIRED"
            await door.send(say("this", taskId=task_id), now=True)
            await worker.write(await worker.lease_one(), status("COMPLETED"))
            assert [short(item) for item in await subscription.rest()] == ["WORKING", "WORKING", "COMPLETED"]


async def test_stemdeck_532_canceled_streams_leak_no_slot(start_broker: StartBroker) -> None:
    """200 times, before and after the first message; none of them cancels the task."""
    at = start(start_broker, WAYSTATION_MAX_STREAMS_PER_TENANT="1000", WAYSTATION_MAX_STREAMS_PER_SUBJECT="1000")
    async with at.exits:
        door = at.door()
        task = await door.send(say("go"), now=True)
        stream = door.channel.unary_stream("/lf.a2a.v1.A2AService/SubscribeToTask")
        sending = door.channel.unary_stream("/lf.a2a.v1.A2AService/SendStreamingMessage")
        metadata = tuple(door.metadata.items())
        for number in range(200):
            if number % 4 == 3:
                call = sending(door.message("SendStreamingMessage", {"message": say("x")}), metadata=metadata)
            else:
                call = stream(door.message("SubscribeToTask", {"id": task["id"]}), metadata=metadata)
            if number % 2:
                await call.read()
            call.cancel()
        await until(lambda: none_open(at.broker))
        assert state(await door.get(task["id"])) == "SUBMITTED"
        async with door.open("SubscribeToTask", {"id": task["id"]}) as live:
            assert await live.next()
            assert await asyncio.to_thread(open_streams, at.broker) == 1
        await until(lambda: none_open(at.broker))
        assert '"level": "error"' not in at.broker.output()


async def test_a_vanished_client_gives_its_slot_back(at: At) -> None:
    """The channel is closed, the call never canceled."""
    door = GrpcDoor(at.broker.grpc_target, at.agent, mint("a"))
    task = await door.send(say("go"), now=True)
    call = door.channel.unary_stream("/lf.a2a.v1.A2AService/SubscribeToTask")(
        door.message("SubscribeToTask", {"id": task["id"]}), metadata=tuple(door.metadata.items())
    )
    await call.read()
    await door.aclose()
    await until(lambda: none_open(at.broker))


async def test_caps_are_shared_with_the_http_doors(start_broker: StartBroker) -> None:
    at = start(start_broker, WAYSTATION_MAX_STREAMS_PER_SUBJECT="2")
    async with at.exits:
        door, rest = at.door(), at.rest()
        task = await door.send(say("go"), now=True)
        async with door.open("SubscribeToTask", {"id": task["id"]}), rest.open("SubscribeToTask", {"id": task["id"]}):
            with pytest.raises(DoorError, match="RESOURCE_EXHAUSTED"):
                async with door.open("SendStreamingMessage", {"message": say("not stored")}):
                    pass
            assert door.details[0]["retryDelay"] == "5s"
        assert (await door.list())["totalSize"] == 1
        await until(lambda: none_open(at.broker))
        async with door.open("SubscribeToTask", {"id": task["id"]}) as stream:
            assert await stream.next()


async def test_a_stream_ends_with_its_token(at: At) -> None:
    task = await at.door().send(say("go"), now=True)
    ends = int(time.time()) + 3
    door = at.door(exp=ends)
    async with door.open("SubscribeToTask", {"id": task["id"]}) as stream:
        error, _ = await last_words(door, stream)
    assert error.reason == "UNAUTHENTICATED"
    assert time.time() >= ends - 0.1


async def test_a_stream_is_recycled_with_retry_info(start_broker: StartBroker) -> None:
    at = start(start_broker, WAYSTATION_STREAM_RECYCLE_SECONDS="1")
    async with at.exits:
        door = at.door()
        async with door.open("SendStreamingMessage", {"message": say("go")}) as stream:
            error, delay = await last_words(door, stream)
    assert error.reason == "UNAVAILABLE"
    assert 1.6 <= delay <= 2.4


async def test_a_clients_deadline_breaks_nothing(at: At) -> None:
    """A blocking send whose deadline passes or that is canceled: its message is stored, the task goes on."""
    door = at.door()
    send = door.channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
    metadata = tuple(door.metadata.items())
    late = send(door.message("SendMessage", {"message": say("late")}), metadata=metadata, timeout=0.5)
    assert await late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    canceled = send(door.message("SendMessage", {"message": say("canceled")}), metadata=metadata)

    async def stored() -> bool:
        return (await door.list())["totalSize"] == 2

    await until(stored)
    canceled.cancel()
    async with at.worker() as worker:
        for _ in range(2):
            await worker.write(await worker.lease_one(), status("COMPLETED"))
    assert [state(task) for task in (await door.list())["tasks"]] == ["COMPLETED"] * 2


async def test_the_same_message_again_after_a_deadline_is_the_same_task(at: At) -> None:
    door, message = at.door(), say("go")
    for _ in range(20):
        call = door.channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")(
            door.message("SendMessage", {"message": message}), metadata=tuple(door.metadata.items()), timeout=0.03
        )
        await call.code()
    await door.send(message, now=True)
    assert (await door.list())["totalSize"] == 1


async def test_a_thousand_tasks_add_no_series(at: At) -> None:
    """backend.ai#12680: methods are counted by name and status."""
    door = at.door()
    await door.list()
    with pytest.raises(DoorError):
        await door.get("none")

    def series() -> list[str]:
        headers = bearer(mint("ops", scope="metrics:read"))
        text = httpx.get(f"{at.broker.base_url}/metrics", headers=headers, trust_env=False).text
        return [line.rpartition(" ")[0] for line in text.splitlines() if "A2AService" in line and "_total" in line]

    before = series()
    route = 'method="GRPC",route="/lf.a2a.v1.A2AService/GetTask",status="NOT_FOUND"'
    assert f"waystation_requests_total{{{route}}}" in before
    for _ in range(20):
        await door.list()
    assert series() == before


@pytest.mark.slow
async def test_a_client_that_reads_nothing_is_cut_off(start_broker: StartBroker) -> None:
    """security.md, Streams: 15 s; its slot is free then, others notice nothing."""
    at = start(start_broker)
    async with at.exits:
        door = at.door()
        task = await door.send(say("go"), now=True)
        async with at.worker() as worker, door.open("SubscribeToTask", {"id": task["id"]}) as stalled:
            lease = await worker.lease_one()
            for number in range(8):
                await worker.write(lease, artifact(f"x{number}", "x" * 1_000_000))
                await worker.heartbeat(lease)
            assert await asyncio.to_thread(open_streams, at.broker) == 1

            async def heartbeat_until_free() -> bool:
                await worker.heartbeat(lease)
                return await none_open(at.broker)

            await until(heartbeat_until_free, 40)
            await worker.write(lease, status("COMPLETED"))
            error, delay = await last_words(door, stalled)
            assert (error.reason, 1.6 <= delay <= 2.4) == ("UNAVAILABLE", True)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a2a_python_545_kagent_907_a_silent_stream_lives_on_pings(at: At) -> None:
    """60 s of silence, with a client that pings every 10 s as well."""
    options: list[tuple[str, Any]] = [("grpc.keepalive_time_ms", 10_000), ("grpc.http2.max_pings_without_data", 0)]
    door = GrpcDoor(at.broker.grpc_target, at.agent, mint("a"), options=options)
    async with door.open("SendStreamingMessage", {"message": say("go")}) as stream:
        await stream.next()
        with pytest.raises(TimeoutError):
            await stream.next(65)
    await door.aclose()
