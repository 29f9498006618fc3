"""What is wrong with a request of A2A 0.3, or about it, before it is an operation: envelope, version, extensions,
access, paths; and nonsense at both doors. Known faults: a2a-python#413, a2a-python#856, ggcode#446, agentstack#1497.
"""

import json
from typing import Any

import httpx
import pytest

from tests.contract.doors import DoorError, Json, say, short
from tests.contract.v0_3_doors import METHODS
from tests.integration.v0_3.conftest import Agent
from tests.support.tokens import CLIENT_SCOPE
from tests.support.worker import status

UNKNOWN = "01900000-0000-7000-8000-000000000000"
SEND = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}
NONSENSE: list[Any] = [None, True, -1, "x" * 300, {}, [[]], {"kind": "text"}, {"data": 1}]
ON_JSON_RPC = pytest.mark.parametrize("door_name", ["jsonrpc-0.3"])
ON_HTTP_JSON = pytest.mark.parametrize("door_name", ["rest-0.3"])


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """The code and the reason, at either door."""
    body = answer.json()
    error = body.get("error", body)
    return error["code"], error["data"][0]["reason"]


@pytest.mark.parametrize("request_id", [7, "7", 1.5, "\u2028", None])
@ON_JSON_RPC
async def test_agentstack_1497_every_answer_and_frame_has_the_id(agent: Agent, request_id: object) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    for method, params in (("tasks/get", {"id": task["id"]}), ("tasks/get", {"id": UNKNOWN})):
        envelope = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        answer = (await door.http.post(f"{door.base}/rpc", json=envelope)).json()
        assert (answer["id"], type(answer["id"]), answer["jsonrpc"]) == (request_id, type(request_id), "2.0")
    envelope = {"jsonrpc": "2.0", "id": request_id, "method": "tasks/resubscribe", "params": {"id": task["id"]}}
    async with door.http.stream("POST", f"{door.base}/rpc", json=envelope) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                assert json.loads(line[6:])["id"] == request_id
                break


@ON_JSON_RPC
async def test_a2a_python_413_envelopes(agent: Agent) -> None:
    door = agent.door()
    for envelope, code in (
        ({"id": 1, "method": "message/send"}, -32600),
        (SEND | {"id": {}}, -32600),
        (SEND | {"params": "x"}, -32602),
        (SEND | {"params": []}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tasks/get"}, -32602),
        (SEND | {"method": "tasks/list"}, -32601),
        (SEND | {"method": "message/Send"}, -32601),
        ([SEND, SEND], -32600),
    ):
        answer = await door.http.post(f"{door.base}/rpc", json=envelope)
        assert (answer.status_code, error_of(answer)[0]) == (200, code)


@ON_JSON_RPC
async def test_ggcode_446_bad_params_of_a_stream_are_a_json_error_with_the_id(agent: Agent) -> None:
    door = agent.door()
    for accept in ("*/*", "application/json, text/event-stream"):
        answer = await door.http.post(
            f"{door.base}/rpc", json=SEND | {"method": "message/stream"}, headers={"Accept": accept}
        )
        assert answer.headers["content-type"] == "application/json"
        assert (answer.json()["id"], error_of(answer)) == (1, (-32602, "INVALID_PARAMS"))


@ON_JSON_RPC
async def test_a_client_that_takes_events_only_gets_the_error_as_its_one_event(agent: Agent) -> None:
    door = agent.door()
    headers = {"Accept": "text/event-stream"}
    for method in ("message/stream", "tasks/resubscribe"):
        answer = await door.http.post(f"{door.base}/rpc", json=SEND | {"method": method}, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert answer.text.startswith("data: {")
        assert answer.text.endswith("}\n\n")
        error = json.loads(answer.text.removeprefix("data: "))
        assert (error["id"], error["error"]["code"]) == (1, -32602)
    stranger = agent.door(scope="tasks:read")
    answer = await stranger.http.post(f"{door.base}/rpc", json=SEND | {"method": "message/stream"}, headers=headers)
    assert (answer.status_code, error_of(answer)[1]) == (403, "INSUFFICIENT_SCOPE")


@pytest.mark.parametrize(
    ("version", "supported"),
    [(None, True), ("", True), ("0.3", True), ("0.3.0", True), ("1.0", False), ("99.0", False), ("one", False)],
)
async def test_a2a_python_856_version(agent: Agent, version: str | None, supported: bool) -> None:
    """A2A-Version does not exist in 0.3: who sends another one knows 1.0's error for it."""
    door = agent.door()
    headers = {} if version is None else {"A2A_Version": version}
    if supported:
        assert (await door.send(say("go"), now=True, headers=headers))["id"]
        return
    with pytest.raises(DoorError) as refused:
        await door.send(say("go"), now=True, headers=headers)
    assert refused.value.reason == "VERSION_NOT_SUPPORTED"
    assert "A2A-Version: 0.3" in str(refused.value)


async def test_a_method_of_1_0_still_needs_its_version(agent: Agent) -> None:
    door = agent.door()
    rpc = await door.http.post(f"{door.base}/rpc", json=SEND | {"method": "GetTask"})
    assert error_of(rpc) == (-32009, "VERSION_NOT_SUPPORTED")
    rest = await door.http.get(f"{door.base}/a2a/tasks/{UNKNOWN}")
    assert rest.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


async def test_a_required_extension_is_asked_for_under_either_header(agent: Agent) -> None:
    uri = "https://example.org/ext/x"
    card = agent.broker.register_agent(agent.id)["card"]
    agent.register(card=card | {"capabilities": {"streaming": True, "extensions": [{"uri": uri, "required": True}]}})
    door = agent.door()
    with pytest.raises(DoorError) as refused:
        await door.send(say("go"), now=True)
    assert refused.value.reason == "EXTENSION_SUPPORT_REQUIRED"
    for header in ("X_A2A_Extensions", "A2A_Extensions"):
        assert (await door.send(say("go"), now=True, headers={header: f"{uri}, https://example.org/y"}))["id"]
        assert door.last is not None
        assert [door.last.headers[name] for name in ("a2a-extensions", "x-a2a-extensions")] == [uri, uri]


async def test_streaming_false_refuses_both_streams(agent: Agent) -> None:
    card = agent.broker.register_agent(agent.id)["card"]
    agent.register(card=card | {"capabilities": {"streaming": False}})
    door = agent.door()
    for operation, params in (
        ("SendStreamingMessage", {"message": say("go")}),
        ("SubscribeToTask", {"id": UNKNOWN}),
    ):
        with pytest.raises(DoorError) as refused:
            async with door.open(operation, params):
                pass
        assert refused.value.reason == "UNSUPPORTED_OPERATION"


async def test_access_is_judged_as_on_the_doors_of_1_0(agent: Agent) -> None:
    """a2a-dotnet#450: another tenant's token finds nothing, whatever the body's tenant says."""
    agent.register(visibility="shared", sharedWith=["*"])
    mine = await agent.door().send(say("go"), now=True)
    with pytest.raises(DoorError) as unknown:
        await agent.door("b").get(mine["id"], tenant="a")
    assert unknown.value.reason == "TASK_NOT_FOUND"
    with pytest.raises(DoorError) as narrow:
        await agent.door(scope="tasks:read").send(say("go"), now=True)
    assert narrow.value.reason == "INSUFFICIENT_SCOPE"
    door = agent.door()
    door.http.headers["Authorization"] = "Bearer x"
    with pytest.raises(DoorError) as nobody:
        await door.get(mine["id"])
    assert nobody.value.reason == "UNAUTHENTICATED"


async def test_unknown_agents_paths_and_verbs(agent: Agent) -> None:
    door = agent.door()
    for path in ("/agents/nobody/a2a/v1/tasks/x", f"{door.base}/a2a/v1/card/"):
        assert (await door.http.get(path)).status_code in (400, 404)
    assert error_of(await door.http.get("/agents/nobody/a2a/v1/tasks/x")) == (-32001, "NOT_FOUND")
    answer = await door.http.delete(f"{door.base}/a2a/v1/tasks/x")
    assert (answer.status_code, error_of(answer)[1]) == (405, "METHOD_NOT_ALLOWED")


async def test_nonsense_is_answered_with_a_client_error(agent: Agent) -> None:
    """Never a 5xx, and no stack trace or SQL in what is said."""
    door = agent.door(scope=f"{CLIENT_SCOPE} push:write")
    fields = ("message", "configuration", "metadata", "id", "taskId", "pushNotificationConfig", "historyLength")
    for operation in METHODS:
        for value in NONSENSE:
            bodies: list[Json] = [{field: value} for field in fields]
            bodies += [{"message": {"parts": value, "role": "user", "messageId": "m"}}]
            bodies += [{"message": {"parts": [value], "content": [value], "role": "user", "messageId": "m"}}]
            for body in bodies:
                answer = await _raw(door, operation, body)
                assert answer.status_code < 500, (operation, body, answer.text)
                if operation != "GetExtendedAgentCard":
                    assert error_of(answer)[0] in (-32602, -32001), (operation, body, answer.text)
                assert "Traceback" not in answer.text


async def _raw(door: Any, operation: str, body: Json) -> httpx.Response:
    method, verb, template = METHODS[operation]
    if not door.proto:
        return await door.http.post(f"{door.base}/rpc", json=SEND | {"method": method, "params": body})
    path = f"{door.base}/a2a/v1{template.format(id=UNKNOWN, pushNotificationConfigId='c')}"
    return await door.http.request(verb, path, json=body)


@ON_HTTP_JSON
async def test_http_json_takes_0_3s_json_objects_too(agent: Agent) -> None:
    """Told from ProtoJSON by ``kind``; the answer is ProtoJSON, which every client of this door reads."""
    door = agent.door()
    part = {"kind": "text", "text": "go"}
    message = {"kind": "message", "messageId": "m", "role": "user", "parts": [part]}
    answer = await door.http.post(f"{door.base}/a2a/v1/message:send", json={"message": message})
    task = answer.json()["task"]
    assert task["history"][0]["content"] == [{"text": "go"}]
    assert task["history"][0]["role"] == "ROLE_USER"


@ON_HTTP_JSON
async def test_a2a_go_381_empty_bodies(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    path = f"{door.base}/a2a/v1/tasks/{task['id']}"
    for verb in ("GET", "POST"):
        async with door.http.stream(verb, f"{path}:subscribe") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
    canceled = await door.http.post(f"{path}:cancel", headers={"Content-Type": "application/json"})
    assert canceled.json()["status"]["state"] == "TASK_STATE_CANCELLED"


@ON_JSON_RPC
async def test_the_first_push_config_is_the_one_without_an_id(agent: Agent) -> None:
    """tasks/pushNotificationConfig/get with the task's id only; secrets are shown once."""
    door = agent.door(scope=f"{CLIENT_SCOPE} push:write")
    task = await door.send(say("go"), now=True)
    get = SEND | {"method": "tasks/pushNotificationConfig/get", "params": {"id": task["id"]}}
    assert error_of(await door.http.post(f"{door.base}/rpc", json=get)) == (-32001, "TASK_NOT_FOUND")
    config: Json = {"taskId": task["id"], "url": "http://127.0.0.1:9/a", "authentication": {"scheme": "Bearer"}}
    made = await door.call("CreateTaskPushNotificationConfig", config)
    found = (await door.http.post(f"{door.base}/rpc", json=get)).json()["result"]
    shown = {"url": config["url"], "id": made["id"], "authentication": {"schemes": ["Bearer"]}}
    assert found == {"taskId": task["id"], "pushNotificationConfig": shown}


async def test_a_config_comes_with_a_message(agent: Agent) -> None:
    """a2a-python#1164 inline: a private address is refused and nothing is stored; an allowed one is listed."""
    door = agent.door(scope=f"{CLIENT_SCOPE} push:write")
    for url, taken in (("http://10.0.0.1/x", False), ("http://127.0.0.1:9/x", True)):
        sending: Json = {
            "message": say("go"),
            "configuration": {"returnImmediately": True, "taskPushNotificationConfig": {"url": url}},
        }
        if not taken:
            with pytest.raises(DoorError) as refused:
                await door.call("SendMessage", sending)
            assert refused.value.reason == "INVALID_PARAMS"
            continue
        task = (await door.call("SendMessage", sending))["task"]
        listed = await door.call("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
        assert [config["url"] for config in listed["configs"]] == [url]


async def test_a_stream_of_a_task_that_ended_meanwhile(agent: Agent) -> None:
    """a2a-python#952 aside: a follow-up's stream may end with its Task frame; nothing says final then."""
    door = agent.door()
    message = say("go")
    await door.send(message, now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    async with door.open("SendStreamingMessage", {"message": message}) as stream:
        assert [short(event) for event in await stream.rest()] == ["task COMPLETED"]
