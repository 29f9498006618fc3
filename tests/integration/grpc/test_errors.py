"""Errors over gRPC: status, ErrorInfo, BadRequest, RetryInfo; versions, routing keys, tokens, tenants (a2a-server.md,
Errors; security.md)."""

import time
from typing import Any
from uuid import uuid4

import grpc
import pytest

from tests.contract.doors import DoorError, Json, say
from tests.contract.grpc_door import GrpcDoor
from tests.integration.grpc.conftest import At, register
from tests.support.broker import card
from tests.support.tokens import mint
from tests.support.worker import status

OPERATIONS: dict[str, tuple[Json, str]] = {
    "SendMessage": ({"message": say("x")}, "tasks:write"),
    "SendStreamingMessage": ({"message": say("x")}, "tasks:write"),
    "GetTask": ({"id": "x"}, "tasks:read"),
    "ListTasks": ({}, "tasks:read"),
    "CancelTask": ({"id": "x"}, "tasks:cancel"),
    "SubscribeToTask": ({"id": "x"}, "tasks:read"),
    "CreateTaskPushNotificationConfig": ({"taskId": "x", "url": "https://example.com"}, "push:write"),
    "GetTaskPushNotificationConfig": ({"taskId": "x", "id": "y"}, "tasks:read"),
    "ListTaskPushNotificationConfigs": ({"taskId": "x"}, "tasks:read"),
    "DeleteTaskPushNotificationConfig": ({"taskId": "x", "id": "y"}, "push:write"),
    "GetExtendedAgentCard": ({}, "tasks:read"),
}


async def refused(door: GrpcDoor, operation: str, params: Json, **headers: str) -> DoorError:
    """The error, which the door has checked against the table of reasons, domains and statuses."""
    with pytest.raises(DoorError) as caught:
        async with door.open(operation, params, **headers):
            pass
    return caught.value


async def terminal(at: At, door: GrpcDoor) -> str:
    task = await door.send(say("go"), now=True)
    async with at.worker() as worker:
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    return str(task["id"])


async def test_a2a_java_731_a2a_rs_103_unknown_task_has_errorinfo(at: At) -> None:
    """``refused`` has checked NOT_FOUND, and the domain a2a-protocol.org."""
    for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
        error = await refused(at.door(), operation, {"id": str(uuid4())})
        assert (error.reason, error.response.code()) == ("TASK_NOT_FOUND", grpc.StatusCode.NOT_FOUND)
    assert (await refused(at.door(), "SendMessage", {"message": say("x", taskId="none")})).reason == "TASK_NOT_FOUND"


async def test_terminal_tasks(at: At) -> None:
    """a2a-python#413, a2a-go#438, a2a-java#741: the state and the last seq stand in the metadata."""
    door = at.door()
    task_id = await terminal(at, door)
    for operation, params, reason in (
        ("CancelTask", {"id": task_id}, "TASK_NOT_CANCELABLE"),
        ("SubscribeToTask", {"id": task_id}, "UNSUPPORTED_OPERATION"),
        ("SendMessage", {"message": say("x", taskId=task_id)}, "UNSUPPORTED_OPERATION"),
        ("SendStreamingMessage", {"message": say("x", taskId=task_id)}, "UNSUPPORTED_OPERATION"),
    ):
        error = await refused(door, operation, params)
        assert (error.reason, error.metadata["state"]) == (reason, "TASK_STATE_COMPLETED")


async def test_each_violation_stands_in_badrequest(at: At) -> None:
    message = {"role": "ROLE_AGENT", "parts": [{}]}
    door = at.door()
    assert (await refused(door, "SendMessage", {"message": message})).reason == "INVALID_PARAMS"
    (bad_request,) = door.details
    assert bad_request["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert [violation["field"] for violation in bad_request["fieldViolations"]] == [
        "message.messageId",
        "message.parts[0]",
    ]


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("GetTask", {"id": "x", "historyLength": -1}),
        ("ListTasks", {"pageSize": 0}),
        ("ListTasks", {"pageSize": 101}),
        ("ListTasks", {"pageToken": "garbage"}),
        ("ListTasks", {"status": 99}),
        ("GetTask", {}),
        ("SendMessage", {}),
        ("SendMessage", {"message": say("x", contextId="c" * 257)}),
        ("SendMessage", {"message": say("x") | {"parts": [{"text": "x"}] * 257}}),
        ("SendMessage", {"message": say("x", metadata={"x": "x" * 70_000})}),
    ],
)
async def test_a2a_rs_122_what_the_models_refuse_is_invalid_params(at: At, operation: str, params: Json) -> None:
    assert (await refused(at.door(), operation, params)).reason == "INVALID_PARAMS"


async def test_many_violations_fit_into_metadata(at: At) -> None:
    """Clients take 8 KiB of it."""
    message = say("x") | {"parts": [{"text": "x", "metadata": {"m": "x" * 70_000}}] * 40}
    door = at.door()
    await refused(door, "SendMessage", {"message": message})
    assert 5 <= len(door.details[0]["fieldViolations"]) <= 20


async def test_capabilities(at: At) -> None:
    register(at.broker, at.agent, streaming=False)
    for operation, params in (("SendStreamingMessage", {"message": say("x")}), ("SubscribeToTask", {"id": "x"})):
        assert (await refused(at.door(), operation, params)).reason == "UNSUPPORTED_OPERATION"
    assert (await refused(at.door(), "GetExtendedAgentCard", {})).reason == "UNSUPPORTED_OPERATION"


@pytest.mark.parametrize("operation", list(OPERATIONS))
@pytest.mark.parametrize("version", ["", "0.3", "99.0", "1", "bogus"])
async def test_a2a_python_856_a2a_rs_271_versions(at: At, operation: str, version: str) -> None:
    """Neither official SDK checks it over gRPC; empty means 0.3, and the text says what to send."""
    error = await refused(at.door(scope=ALL), operation, OPERATIONS[operation][0], a2a_version=version)
    assert error.reason == "VERSION_NOT_SUPPORTED"
    assert "A2A-Version: 1.0" in str(error)


@pytest.mark.parametrize("version", ["1.0", "1.0.7"])
async def test_the_patch_number_of_a_version_is_ignored(at: At, version: str) -> None:
    assert (await at.door().call("ListTasks", {}, a2a_version=version))["totalSize"] == 0


async def test_a_required_extension_must_be_asked_for(at: At) -> None:
    needed = {"uri": "https://example.com/needed", "required": True}
    described = card(at.agent) | {"capabilities": {"streaming": True, "extensions": [needed]}}
    at.broker.register_agent(at.agent, card=described)
    assert (await refused(at.door(), "ListTasks", {})).reason == "EXTENSION_SUPPORT_REQUIRED"
    assert (await at.door().call("ListTasks", {}, a2a_extensions=needed["uri"]))["totalSize"] == 0


async def test_a2a_dotnet_450_the_routing_key_chooses_the_agent_and_never_a_tenant(at: At) -> None:
    task = await at.door().send(say("go"), now=True)
    other = f"{at.agent}-2"
    register(at.broker, other)
    assert (await refused(at.door(agent=other), "GetTask", {"id": task["id"]})).reason == "TASK_NOT_FOUND"
    assert (await at.door(agent=other).list())["totalSize"] == 0
    for routing_key in ("", "unknown", "a", "default", "x" * 300, f"{at.agent} "):
        assert (await refused(at.door(agent=routing_key), "ListTasks", {})).reason == "NOT_FOUND", routing_key


async def test_foreign_and_unknown_are_byte_equal(at: At) -> None:
    """security.md, Tenant isolation: agents and tasks of others look like none, in every byte of the answer."""
    private = f"{at.agent}-p"
    at.broker.register_agent(private)
    task = await at.door().send(say("go"), now=True)

    async def seen(door: GrpcDoor, operation: str, params: Json) -> tuple[Any, ...]:
        error = (await refused(door, operation, params)).response
        return error.code(), error.details(), tuple(error.trailing_metadata()), tuple(error.initial_metadata())

    for operation, (params, _) in OPERATIONS.items():
        foreign = await seen(at.door("b", agent=private, scope=ALL), operation, params)
        assert foreign == await seen(at.door("b", agent="no-such-agent", scope=ALL), operation, params)
    for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
        foreign = await seen(at.door("b"), operation, {"id": task["id"]})
        assert foreign == await seen(at.door("b"), operation, {"id": str(uuid4())})
    assert (await at.door("b").list())["totalSize"] == 0


@pytest.mark.parametrize("operation", list(OPERATIONS))
async def test_tokens_are_judged_before_anything_else(at: At, operation: str) -> None:
    """Six kinds of token at every method, with a message that is not even one."""
    params, scope = OPERATIONS[operation]
    door = at.door()
    door.message = lambda *_: b"\xff\xff\xff"
    expired = mint("a", exp=int(time.time()) - 3600, iat=int(time.time()) - 7200)
    for value in ("", "Bearer", "Bearer garbage", f"Basic {mint('a')}", f"Bearer {expired}"):
        error = await refused(door, operation, params, authorization=value)
        assert (error.reason, error.metadata) == ("UNAUTHENTICATED", {})
    others = " ".join(sorted(set(ALL.split()) - {scope})) + " admin agents:admin"
    error = await refused(door, operation, params, authorization=f"Bearer {mint('a', scope=others)}")
    assert (error.reason, error.metadata["scope"]) == ("INSUFFICIENT_SCOPE", scope)
    error = await refused(door, operation, params, authorization=f"Bearer {mint('a', scope=scope)}")
    assert error.reason == "PARSE_ERROR"


async def test_a_missing_token_and_a_second_one(at: At) -> None:
    door = at.door()
    del door.metadata["authorization"]
    assert (await refused(door, "ListTasks", {})).reason == "UNAUTHENTICATED"


async def test_unknown_methods_and_services_are_unimplemented(at: At) -> None:
    door = at.door()
    for path in ("/lf.a2a.v1.A2AService/Nothing", "/a2a.v1.A2AService/GetTask", "/x", "/lf.a2a.v1.A2AService/getTask"):
        with pytest.raises(grpc.RpcError) as caught:
            await door.channel.unary_unary(path)(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


ALL = "tasks:read tasks:write tasks:cancel push:write"
