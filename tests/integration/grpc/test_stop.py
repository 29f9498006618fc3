"""How the gRPC door stops, dies and comes back: health, drain, kill -9, a replica or a database that is away
(reliability.md, Shutdown; docs/decisions/grpc-stream-ends.md)."""

import asyncio
import signal
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from app.ledger.migrations import migrate
from app.transports.grpc.health import MAX_WATCHERS
from tests.contract.doors import DoorError, say, short, state
from tests.contract.grpc_door import RESUME, SERVICE, GrpcDoor
from tests.integration.grpc.conftest import At, StartBroker, start
from tests.support.broker import free_port
from tests.support.postgres import OwnPostgres
from tests.support.tokens import mint
from tests.support.worker import artifact, status

pytestmark = pytest.mark.usefixtures("database_url")  # made before a test's event loop runs
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def health(channel: grpc.aio.Channel) -> Any:
    return health_pb2_grpc.HealthStub(channel)


def second(start_broker: StartBroker, first: At) -> At:
    """Another replica on the same database."""
    broker = start_broker(first.broker.database_url, WAYSTATION_GRPC_PORT="0")
    return At(broker, first.agent)


async def test_health_is_open_and_knows_two_names(at: At) -> None:
    async with grpc.aio.insecure_channel(at.broker.grpc_target) as channel:
        for name in ("", SERVICE.full_name):
            assert (await health(channel).Check(health_pb2.HealthCheckRequest(service=name))).status == SERVING
        call = health(channel).Check(health_pb2.HealthCheckRequest(service="other"))
        assert await call.code() is grpc.StatusCode.NOT_FOUND
        watch = health(channel).Watch(health_pb2.HealthCheckRequest(service="other"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


async def test_watchers_of_health_leave_room_for_calls(at: At) -> None:
    """Watching needs no token, so it may not take the places of those who have one."""
    async with grpc.aio.insecure_channel(at.broker.grpc_target) as channel:
        watches = [health(channel).Watch(health_pb2.HealthCheckRequest()) for _ in range(MAX_WATCHERS)]
        for watch in watches:
            assert (await watch.read()).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
            await asyncio.wait_for(health(channel).Watch(health_pb2.HealthCheckRequest()).read(), 20)
        assert (await health(channel).Check(health_pb2.HealthCheckRequest())).status == SERVING
        watches[0].cancel()

        async def may_watch() -> bool:
            with suppress(grpc.aio.AioRpcError):
                return (await health(channel).Watch(health_pb2.HealthCheckRequest()).read()).status == SERVING
            return False

        async with asyncio.timeout(20):
            while not await may_watch():
                await asyncio.sleep(0.02)


async def test_health_follows_readiness(own_postgres: OwnPostgres, start_broker: StartBroker) -> None:
    """NOT_SERVING while PostgreSQL is away; calls are UNAVAILABLE with RetryInfo meanwhile, streams stay open."""
    await migrate(own_postgres.dsn())
    at = start(start_broker, own_postgres.dsn())
    async with at.exits, grpc.aio.insecure_channel(at.broker.grpc_target) as channel:
        watch = health(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        door = at.door()
        task = await door.send(say("go"), now=True)
        async with door.open("SubscribeToTask", {"id": task["id"]}) as stream:
            await stream.next()
            await own_postgres.kill()
            assert (await asyncio.wait_for(watch.read(), 20)).status == NOT_SERVING
            for operation, params in (("GetTask", {"id": task["id"]}), ("SendMessage", {"message": say("x")})):
                with pytest.raises(DoorError, match="UNAVAILABLE"):
                    await door.call(operation, params)
                assert 1 <= float(door.details[0]["retryDelay"].removesuffix("s")) <= 5
            await own_postgres.resume()
            assert (await asyncio.wait_for(watch.read(), 20)).status == SERVING
            assert state(await door.cancel(task["id"])) == "CANCELED"
            assert [short(item) for item in await stream.rest(20)] == ["CANCELED"]
        watch.cancel()


async def test_sigterm_under_twenty_streams(start_broker: StartBroker) -> None:
    """Each ends with UNAVAILABLE and RetryInfo within 5 s, a blocking send is answered, the exit code is 0, and every
    client goes on at the other replica, by cursor."""
    at = start(start_broker)
    other = second(start_broker, at)
    async with at.exits, other.exits:
        door = at.door()
        task = await door.send(say("go"), now=True)
        doors = [at.door(sub=f"u{number}") for number in range(20)]
        calls = [
            each.channel.unary_stream("/lf.a2a.v1.A2AService/SubscribeToTask")(
                each.message("SubscribeToTask", {"id": task["id"]}), metadata=tuple(each.metadata.items())
            )
            for each in doors
        ]
        for call in calls:
            await call.read()
        watch = health(door.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        blocking = asyncio.create_task(door.send(say("waits")))
        while (await other.door().list())["totalSize"] < 2:
            await asyncio.sleep(0.02)

        assert await asyncio.to_thread(at.broker.terminate, 15) == 0, "before the grace of other calls (20 s) is over"
        assert state(await blocking) == "SUBMITTED"
        assert (await watch.read()).status == NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        delays: set[float] = set()
        for each, call in zip(doors, calls, strict=True):
            with pytest.raises(DoorError, match="UNAVAILABLE"):
                await each.read(call, 5)
            delays.add(float(each.details[0]["retryDelay"].removesuffix("s")))
        assert min(delays) >= 0.5
        assert max(delays) <= 3
        assert len(delays) > 10, "spread out, so that they do not all come at once"

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await at.door().channel.unary_unary("/lf.a2a.v1.A2AService/ListTasks")(b"", timeout=5)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        headers = {"a2a_extensions": RESUME, "last_event_id": "1.1"}
        async with other.door().open("SubscribeToTask", {"id": task["id"]}, **headers) as stream:
            await stream.next()
            await other.door().cancel(task["id"])
            assert [short(item) for item in await stream.rest()] == ["CANCELED"]
        assert '"level": "error"' not in at.broker.output()


async def test_a_client_that_reads_nothing_does_not_hold_up_the_stop(start_broker: StartBroker) -> None:
    at = start(start_broker)
    async with at.exits:
        door = at.door()
        task = await door.send(say("go"), now=True)
        async with at.worker() as worker, door.open("SubscribeToTask", {"id": task["id"]}) as stalled:
            lease = await worker.lease_one()
            for number in range(8):
                await worker.write(lease, artifact(f"x{number}", "x" * 1_000_000))
            assert await asyncio.to_thread(at.broker.terminate, 15) == 0, "before the grace of other calls is over"
            assert stalled.first is not None, "its first message is still there, unread"
        assert '"level": "error"' not in at.broker.output()


async def test_kill_9_and_reconnect(start_broker: StartBroker) -> None:
    """salesagent#2257: the task is as it was; the stream goes on after its cursor, on the same channel."""
    at = start(start_broker, WAYSTATION_GRPC_PORT=str(free_port()))
    options: list[tuple[str, Any]] = [
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    door = GrpcDoor(at.broker.grpc_target, at.agent, mint("a"), options=options)
    async with at.exits, at.worker() as worker:
        async with door.open("SendStreamingMessage", {"message": say("go")}, a2a_extensions=RESUME) as stream:
            task_id = (await stream.next() or {})["task"]["id"]
            lease = await worker.lease_one(leaseSeconds=300)
            await worker.write(lease, artifact("x", "A"))
            frames = [await stream.next_frame() for _ in range(2)]
            cursor = (frames[1] and frames[1].id) or ""
            before = await door.get(task_id)
            await worker.write(lease, artifact("x", "B", append=True))
            at.broker.kill()
            with pytest.raises((DoorError, AssertionError)):
                await stream.rest(10)
        at.broker.start()
        after = await door.get(task_id)
        assert (after["id"], after["history"]) == (before["id"], before["history"])
        headers = {"a2a_extensions": RESUME, "last_event_id": cursor}
        async with door.open("SubscribeToTask", {"id": task_id}, **headers) as stream:
            assert short(await stream.next() or {}) == "task WORKING"
            await worker.write(lease, status("COMPLETED"))
            assert [short(item) for item in await stream.rest()] == ["x+B", "COMPLETED"]
    await door.aclose()


async def test_a_replica_that_hangs_is_left_for_the_other(start_broker: StartBroker) -> None:
    """SIGSTOP: the deadline passes, the other replica answers, and the same message is one task."""
    at = start(start_broker)
    other = second(start_broker, at)
    async with at.exits, other.exits:
        door, message = at.door(), say("go")
        await door.list()
        at.broker.signal(signal.SIGSTOP)
        call = door.channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")(
            door.message("SendMessage", {"message": message}), metadata=tuple(door.metadata.items()), timeout=1
        )
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await other.door().send(message, now=True)
        at.broker.signal(signal.SIGCONT)
        await at.door().send(message, now=True)
        assert (await other.door().list())["totalSize"] == 1
