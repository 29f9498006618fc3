"""Every operation over gRPC, as the official stub and as a raw channel call it (a2a-server.md, Operations)."""

import asyncio
import json

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf import empty_pb2

from app.operations.registry import OPERATIONS
from tests.contract.doors import DoorError, say, short, state
from tests.contract.grpc_door import RESUME, SERVICE
from tests.integration.grpc.conftest import At
from tests.support.broker import card
from tests.support.tokens import mint
from tests.support.worker import artifact, status


def test_the_table_has_the_services_methods() -> None:
    methods = {method.name: method for method in SERVICE.methods}
    assert {row.name for row in OPERATIONS} == set(methods)
    assert {row.name for row in OPERATIONS if row.streaming} == {
        name for name, method in methods.items() if method.server_streaming
    }


async def test_send_returns_at_once_or_after_the_turn(at: At) -> None:
    door = at.door()
    queued = await door.send(say("first"), now=True)
    assert state(queued) == "SUBMITTED"
    await door.cancel(queued["id"])
    sending = asyncio.create_task(door.send(say("second")))
    async with at.worker() as worker:
        await worker.write(await worker.lease_one(), artifact("stock", "A:3", last=True), status("COMPLETED"))
    task = await sending
    assert (state(task), task["artifacts"][0]["parts"]) == ("COMPLETED", [{"text": "A:3"}])
    assert await door.get(task["id"]) == task


async def test_a_task_is_the_same_at_every_door(at: At) -> None:
    door, rest = at.door(), at.rest()
    parts = [{"text": "ü 漢字 🙂"}, {"raw": "AAECAw==", "mediaType": "image/png"}, {"url": "https://example.com/x"}]
    data = {"whole": 3, "half": 0.5, "none": None, "list": [1, [True, {}], "x"], "large": 1e300, "": ""}
    message = say("one", metadata={"a": {"b": [1, 2]}}) | {"parts": [*parts, {"data": data}]}
    task = await door.send(message, now=True)
    stored = (await rest.get(task["id"]))["history"][0]
    assert stored["parts"] == message["parts"]
    assert [type(value) for value in (stored["parts"][3]["data"]["whole"], stored["metadata"]["a"]["b"][0])] == [
        int
    ] * 2
    assert json.dumps(task["history"][0]["parts"], sort_keys=True) == json.dumps(
        (await door.get(task["id"]))["history"][0]["parts"], sort_keys=True
    )
    assert task["history"][0]["parts"] == message["parts"]
    again = await rest.send(message, now=True)
    assert again["id"] == task["id"], "one hash on all doors: the same message is a duplicate"


async def test_list_pages_and_filters(at: At) -> None:
    door = at.door()
    tasks = [await door.send(say("go"), now=True) for _ in range(3)]
    first = await door.list(pageSize=2)
    second = await door.list(pageSize=2, pageToken=first["nextPageToken"])
    assert [task["id"] for task in first["tasks"] + second["tasks"]] == [task["id"] for task in reversed(tasks)]
    assert (second["nextPageToken"], first["totalSize"], first["pageSize"]) == ("", 3, 2)
    assert (await door.list(contextId=tasks[0]["contextId"]))["totalSize"] == 1
    assert await door.list(status="TASK_STATE_FAILED") == {
        "tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0
    }  # fmt: skip


async def test_cancel_and_follow_up(at: At) -> None:
    door = at.door()
    task = await door.send(say("go"), now=True)
    async with at.worker() as worker:
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which?"))
    assert state(await door.send(say("this", taskId=task["id"]), now=True)) == "WORKING"
    assert state(await door.cancel(task["id"])) == "CANCELED"


async def test_streams_send_the_task_first_and_close(at: At) -> None:
    door = at.door()
    async with door.open("SendStreamingMessage", {"message": say("go")}) as stream:
        first = await stream.next() or {}
        assert short(first) == "task SUBMITTED"
        async with door.open("SubscribeToTask", {"id": first["task"]["id"]}) as other, at.worker() as worker:
            assert short(await other.next() or {}) == "task SUBMITTED"
            lease = await worker.lease_one()
            await worker.write(lease, artifact("stock", "A:"))
            await worker.write(lease, artifact("stock", "3", append=True, last=True), status("COMPLETED"))
            items = await stream.rest()
            assert [short(item) for item in items] == ["WORKING", "stock=A:", "stock+3", "COMPLETED"]
            assert await other.rest() == items
    assert await stream.call.code() is grpc.StatusCode.OK


async def test_a_duplicate_says_so_in_trailing_metadata(at: At) -> None:
    """resume-contract.md, Duplicates; the Idempotency-Key is metadata."""
    door = at.door()
    first = await door.send(say("go"), now=True, headers={"idempotency-key": "k1"})
    assert not door.replayed
    message = first["history"][0]
    same = say("go") | {"messageId": message["messageId"]}
    assert (await door.send(same, now=True, headers={"idempotency-key": "k1"}))["id"] == first["id"]
    assert door.replayed
    with pytest.raises(DoorError, match="IDEMPOTENCY_CONFLICT"):
        await door.send(same | {"parts": [{"text": "other"}]}, now=True)


async def test_the_trace_goes_to_the_worker(at: At) -> None:
    trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    await at.door().send(say("go"), now=True, headers={"traceparent": trace})
    async with at.worker() as worker:
        assert (await worker.lease_one())["traceparent"] == trace


async def test_extensions_are_echoed_in_initial_metadata(at: At) -> None:
    door = at.door()
    await door.call("ListTasks", {}, a2a_extensions=f"{RESUME}, https://example.com/unknown")
    assert door.initial["a2a-extensions"] == RESUME
    await door.list()
    assert "a2a-extensions" not in door.initial


async def test_every_method_is_answered_by_the_official_stub(at: At) -> None:
    """A refusal too is the operation's own, never UNIMPLEMENTED."""
    pb, metadata = a2a_pb2, (("authorization", f"Bearer {mint('a', scope=SCOPES)}"), ("a2a-version", "1.0"))
    async with grpc.aio.insecure_channel(at.broker.grpc_target) as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        message = pb.Message(message_id="m1", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])
        request = pb.SendMessageRequest(tenant=at.agent, message=message)
        request.configuration.return_immediately = True
        task = (await stub.SendMessage(request, metadata=metadata)).task
        calls = [
            stub.GetTask(pb.GetTaskRequest(tenant=at.agent, id=task.id), metadata=metadata),
            stub.ListTasks(pb.ListTasksRequest(tenant=at.agent), metadata=metadata),
            stub.GetExtendedAgentCard(pb.GetExtendedAgentCardRequest(tenant=at.agent), metadata=metadata),
            stub.CancelTask(pb.CancelTaskRequest(tenant=at.agent, id=task.id), metadata=metadata),
        ]
        codes = [await call.code() for call in calls]
        assert codes == [
            grpc.StatusCode.OK,
            grpc.StatusCode.OK,
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.OK,
        ]


async def test_push_configs_are_made_read_listed_and_deleted(at: At) -> None:
    """a2a-js#541 over gRPC: two creates without an id give two ids."""
    door = at.door(scope=SCOPES)
    task = await door.send(say("go"), now=True)
    config = {"taskId": task["id"], "url": "https://example.com/hook"}
    made = [await door.call("CreateTaskPushNotificationConfig", config) for _ in range(2)]
    assert len({config["id"] for config in made}) == 2
    read = await door.call("GetTaskPushNotificationConfig", {"taskId": task["id"], "id": made[0]["id"]})
    assert read["url"] == config["url"]
    listed = await door.call("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
    assert {config["id"] for config in listed["configs"]} == {config["id"] for config in made}
    assert await door.call("DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": made[0]["id"]}) == {}
    assert SERVICE.methods_by_name["DeleteTaskPushNotificationConfig"].output_type == empty_pb2.Empty.DESCRIPTOR


async def test_the_extended_card_names_this_door(at: At) -> None:
    described = card(at.agent, extendedAgentCard=True)
    extended = described | {"description": "For those who have signed in."}
    at.broker.register_agent(at.agent, card=described, extendedCard=extended)
    shown = await at.door().call("GetExtendedAgentCard", {})
    assert (shown["description"], shown["capabilities"]["extendedAgentCard"]) == (extended["description"], True)
    interfaces = [row for row in shown["supportedInterfaces"] if row["protocolBinding"] == "GRPC"]
    here = {"url": at.broker.grpc_target, "protocolBinding": "GRPC", "tenant": at.agent, "protocolVersion": "1.0"}
    assert interfaces == [here]


async def test_raw_grpc_as_grpcurl_speaks_it(at: At) -> None:
    """No stub, no generated types: a channel, bytes, and field numbers of a2a.proto."""
    metadata = (("authorization", f"Bearer {mint('a')}"), ("a2a-version", "1.0"))

    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    message = field(1, b"m-raw") + b"\x20\x01" + field(5, field(1, b"hello"))  # message_id, role = ROLE_USER, parts
    request = field(1, at.agent.encode()) + field(2, message) + field(3, b"\x20\x01")  # return_immediately
    async with grpc.aio.insecure_channel(at.broker.grpc_target) as channel:
        send = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
        answer: bytes = await send(request, metadata=metadata)
        task = a2a_pb2.SendMessageResponse.FromString(answer).task
        assert task.history[0].parts[0].text == "hello"
        follow = channel.unary_stream("/lf.a2a.v1.A2AService/SubscribeToTask")
        stream = follow(field(1, at.agent.encode()) + field(2, task.id.encode()), metadata=metadata)
        assert a2a_pb2.StreamResponse.FromString(await stream.read()).task.id == task.id
        stream.cancel()


SCOPES = "tasks:read tasks:write tasks:cancel push:write"
