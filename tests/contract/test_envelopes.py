"""What is wrong with a request before it is an operation: envelope, version, media type, routing key, paths.

a2a-server.md, Errors and Version; each case is sent as raw bytes. Known faults: a2a-python#413, deja-vu#1796,
a2a-python#856, ggcode#446, agentstack#1497.
"""

import json
from typing import Any

import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import say, state

JSON_TYPE = {"Content-Type": "application/json"}
GOOD = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
UNKNOWN = "01900000-0000-7000-8000-000000000000"


def error_of(body: dict[str, Any]) -> tuple[Any, int, str]:
    return body["id"], body["error"]["code"], body["error"]["data"][0]["reason"]


@pytest.fixture
def door_name() -> str:
    """These cases name their door themselves."""
    return "jsonrpc"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", (None, -32700, "PARSE_ERROR")),
        (b"{", (None, -32700, "PARSE_ERROR")),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\\ud800"}}', (None, -32700, "PARSE_ERROR")),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\\u0000"}}', (None, -32700, "PARSE_ERROR")),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"GetTask"}', (None, -32700, "PARSE_ERROR")),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"GetTask"}', (None, -32700, "PARSE_ERROR")),
        (b"\xef\xbb\xbf{}", (None, -32700, "PARSE_ERROR")),
        (b'"GetTask"', (None, -32600, "INVALID_REQUEST")),
        (b"[]", (None, -32600, "INVALID_REQUEST")),
        (json.dumps([GOOD, GOOD]).encode(), (None, -32600, "INVALID_REQUEST")),
        (b'{"id":1,"method":"GetTask","params":{"id":"x"}}', (1, -32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"1.0","id":"a","method":"GetTask"}', ("a", -32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","id":{},"method":"GetTask"}', (None, -32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","id":[1],"method":"GetTask"}', (None, -32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","id":true,"method":"GetTask"}', (None, -32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","id":"%s","method":"GetTask"}' % (b"x" * 257), (None, -32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","id":7}', (7, -32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","id":7,"method":7}', (7, -32600, "INVALID_REQUEST")),
        (b'{"jsonrpc":"2.0","id":7,"method":"Explode"}', (7, -32601, "METHOD_NOT_FOUND")),
        (b'{"jsonrpc":"2.0","id":7,"method":"GetTask","params":"x"}', (7, -32602, "INVALID_PARAMS")),
        (b'{"jsonrpc":"2.0","id":7,"method":"GetTask","params":[]}', (7, -32602, "INVALID_PARAMS")),
        (b'{"jsonrpc":"2.0","id":7,"method":"GetTask"}', (7, -32602, "INVALID_PARAMS")),
        (b'{"jsonrpc":"2.0","id":"7","method":"SendStreamingMessage","params":{}}', ("7", -32602, "INVALID_PARAMS")),
        (b'{"jsonrpc":"2.0","id":7,"method":"SubscribeToTask","params":{"id":4}}', (7, -32602, "INVALID_PARAMS")),
        (b"[" * 70 + b"]" * 70, (None, -32700, "PARSE_ERROR")),
    ],
)
async def test_json_rpc_envelope(agent: Agent, raw: bytes, expected: tuple[Any, int, str]) -> None:
    door = agent.door()
    answer = await door.http.post(f"{door.base}/rpc", content=raw, headers=JSON_TYPE)
    assert answer.headers["content-type"] == "application/json"
    assert (answer.status_code, error_of(answer.json())) == (200, expected)


@pytest.mark.parametrize("request_id", [1, "1", "\u2028", "x" * 256, 2**53, -5, 1.5, None])
async def test_the_id_comes_back_equal_in_value_and_type(agent: Agent, request_id: object) -> None:
    door = agent.door()
    for envelope in (LIST, GOOD):
        answer = await door.http.post(f"{door.base}/rpc", json=envelope | {"id": request_id})
        assert answer.json()["id"] == request_id
        assert type(answer.json()["id"]) is type(request_id)


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/json; a=b; charset=utf-16",
        "",
    ],
)
async def test_a_body_that_is_not_declared_as_json(agent: Agent, content_type: str) -> None:
    door = agent.door()
    headers = {"Content-Type": content_type} if content_type else {}
    answer = await door.http.post(f"{door.base}/rpc", content=json.dumps(LIST).encode(), headers=headers)
    assert error_of(answer.json()) == (None, -32005, "CONTENT_TYPE_NOT_SUPPORTED")
    answer = await door.http.post(f"{door.base}/a2a/message:send", content=b"{}", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["details"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/a2a+json",
        "Application/JSON; charset=UTF-8",
        "application/json; charset=utf-8; a=b",
    ],
)
async def test_both_json_types_are_taken(agent: Agent, content_type: str) -> None:
    door = agent.door()
    headers = {"Content-Type": content_type}
    answer = await door.http.post(f"{door.base}/rpc", content=json.dumps(LIST).encode(), headers=headers)
    assert answer.json()["result"]["tasks"] == []


@pytest.mark.parametrize(
    ("version", "supported"),
    [("1.0", True), ("1.0.7", True), ("", False), (None, False), ("0.3", False), ("99.0", False), ("one", False)],
)
async def test_a2a_python_856_version(agent: Agent, version: str | None, supported: bool) -> None:
    door = agent.door()
    del door.http.headers["A2A-Version"]
    headers = {} if version is None else {"A2A-Version": version}
    rpc = await door.http.post(f"{door.base}/rpc", json=LIST, headers=headers)
    rest = await door.http.get(f"{door.base}/a2a/tasks", headers=headers)
    if supported:
        assert (rpc.json()["result"]["tasks"], rest.json()["tasks"]) == ([], [])
        return
    assert error_of(rpc.json()) == (1, -32009, "VERSION_NOT_SUPPORTED")
    assert "A2A-Version: 1.0" in rpc.json()["error"]["message"]
    assert (rest.status_code, rest.json()["error"]["details"][0]["reason"]) == (400, "VERSION_NOT_SUPPORTED")


async def test_the_version_may_be_a_query_parameter(agent: Agent) -> None:
    door = agent.door()
    del door.http.headers["A2A-Version"]
    assert (await door.http.get(f"{door.base}/a2a/tasks?A2A-Version=1.0")).status_code == 200
    assert "result" in (await door.http.post(f"{door.base}/rpc?A2A-Version=1.0", json=LIST)).json()


async def test_methods_of_0_3_are_not_of_1_0(agent: Agent) -> None:
    """0.3 is chosen by method name, and the header must not say otherwise (tests/integration/v0_3)."""
    door = agent.door()
    answer = await door.http.post(f"{door.base}/rpc", json=LIST | {"method": "tasks/get"})
    assert error_of(answer.json()) == (1, -32009, "VERSION_NOT_SUPPORTED")


async def test_extensions_known_to_the_broker_are_echoed(agent: Agent) -> None:
    door = agent.door()
    resume = "https://waystation.dev/ext/resume/v1"
    for asked, echoed in ((f"https://example.org/x, {resume}", resume), ("https://example.org/x", None), ("", None)):
        for request in (
            door.http.post(f"{door.base}/rpc", json=LIST, headers={"A2A-Extensions": asked}),
            door.http.get(f"{door.base}/a2a/tasks", headers={"A2A-Extensions": asked}),
        ):
            assert (await request).headers.get("a2a-extensions") == echoed


async def test_no_redirect_anywhere(agent: Agent) -> None:
    door = agent.door()
    for path in ("/rpc", "/rpc/", "", "/"):
        assert "result" in (await door.http.post(f"{door.base}{path}", json=LIST)).json(), path
    for path in ("/agents", f"{door.base}/a2a/tasks/", f"{door.base}/elsewhere", "/v1/tasks/", "/nowhere", "//"):
        answer = await door.http.get(path)
        assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND"), path


async def test_a_method_that_a_path_does_not_have(agent: Agent) -> None:
    door = agent.door()
    for method, path, allowed in (
        ("GET", f"{door.base}/rpc", "POST"),
        ("GET", f"{door.base}/", "POST"),
        ("GET", f"{door.base}/a2a/message:send", "POST"),
        ("GET", f"{door.base}/a2a/tasks/{UNKNOWN}:cancel", "POST"),
        ("DELETE", f"{door.base}/a2a/tasks", "GET, HEAD"),
    ):
        answer = await door.http.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_routing_key_segment(agent: Agent) -> None:
    """The segment must be the agent's id; a body that says otherwise is invalid; without a segment it is ignored."""
    door = agent.door()
    sent = await door.http.post(f"{door.base}/a2a/{agent.id}/message:send", json=_send())
    task = sent.json()["task"]
    assert state(task) == "SUBMITTED"
    assert (await door.http.get(f"{door.base}/a2a/{agent.id}/tasks/{task['id']}")).json()["id"] == task["id"]
    assert (await door.http.get(f"{door.base}/a2a/{agent.id}/tasks")).json()["totalSize"] == 1
    assert (await door.http.post(f"{door.base}/a2a/{agent.id}/tasks/{task['id']}:cancel")).status_code == 200

    wrong = await door.http.post(f"{door.base}/a2a/another/message:send", json=_send())
    assert (wrong.status_code, wrong.json()["error"]["details"][0]["reason"]) == (404, "NOT_FOUND")
    for same, status in ((agent.id, 200), ("", 200), ("another", 400)):
        answer = await door.http.post(f"{door.base}/a2a/{agent.id}/message:send", json=_send(tenant=same))
        assert answer.status_code == status, answer.text
    assert (await door.http.post(f"{door.base}/a2a/message:send", json=_send(tenant="another"))).status_code == 200
    answer = await door.http.get(f"{door.base}/a2a/{agent.id}/tasks", params={"tenant": "another"})
    assert answer.status_code == 400


async def test_rest_answers_a2a_json_when_asked(agent: Agent) -> None:
    door = agent.door()
    for accept, given in (("application/a2a+json", "application/a2a+json"), ("*/*", "application/json")):
        good = await door.http.get(f"{door.base}/a2a/tasks", headers={"Accept": accept})
        bad = await door.http.get(f"{door.base}/a2a/tasks?pageSize=0", headers={"Accept": accept})
        assert (good.headers["content-type"], bad.headers["content-type"]) == (given, given)


async def test_a2a_1600_a_rest_error_is_a_status_with_details(agent: Agent) -> None:
    door = agent.door()
    answer = await door.http.post(f"{door.base}/a2a/message:send", json={"message": {"role": "ROLE_USER"}})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    info, bad_request = error["details"]
    assert (info["reason"], info["domain"]) == ("INVALID_PARAMS", "a2a-protocol.org")
    assert bad_request["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    fields = {violation["field"] for violation in bad_request["fieldViolations"]}
    assert fields == {"message.messageId", "message.parts"}


@pytest.mark.parametrize("query", ["pageSize=1&pageSize=2", "contextId=%00", "x=1&x=1"])
async def test_bad_queries_of_the_rest_door(agent: Agent, query: str) -> None:
    door = agent.door()
    answer = await door.http.get(f"{door.base}/a2a/tasks?{query}")
    assert (answer.status_code, answer.json()["error"]["details"][0]["reason"]) == (400, "INVALID_PARAMS")


@pytest.mark.parametrize("method", ["subscribe", "cancel"])
async def test_parameters_given_twice_are_refused_beside_a_body_too(agent: Agent, method: str) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    path = f"{door.base}/a2a/tasks/{task['id']}:{method}?after_sequence_number=1&after_sequence_number=2"
    answer = await door.http.post(path, json={})
    assert (answer.status_code, answer.json()["error"]["details"][0]["reason"]) == (400, "INVALID_PARAMS")
    assert state(await door.get(task["id"])) == "SUBMITTED"


async def test_the_path_wins_over_an_id_in_body_or_query(agent: Agent) -> None:
    door = agent.door()
    task = (await door.http.post(f"{door.base}/a2a/message:send", json=_send())).json()["task"]
    assert (await door.http.get(f"{door.base}/a2a/tasks/{task['id']}?id={UNKNOWN}")).json()["id"] == task["id"]
    canceled = await door.http.post(f"{door.base}/a2a/tasks/{task['id']}:cancel", json={"id": UNKNOWN})
    assert canceled.json()["id"] == task["id"]


def _send(**fields: Any) -> dict[str, Any]:
    return {"message": say("go"), "configuration": {"returnImmediately": True}} | fields


async def test_an_extension_that_the_card_requires(agent: Agent) -> None:
    known = "https://example.org/ext/known"
    needed = "https://example.org/ext/needed"
    registered = agent.broker.register_agent(agent.id)["card"]
    extensions = [{"uri": known}, {"uri": needed, "required": True}]
    agent.register(card=registered | {"capabilities": {"streaming": True, "extensions": extensions}})
    door = agent.door()
    for asked, echoed in ((f"{needed}", needed), (f"{needed},{known}, urn:other", f"{known}, {needed}")):
        answer = await door.http.post(f"{door.base}/rpc", json=LIST, headers={"A2A-Extensions": asked})
        assert (answer.json()["result"]["tasks"], answer.headers["a2a-extensions"]) == ([], echoed)
    rpc = await door.http.post(f"{door.base}/rpc", json=LIST, headers={"A2A-Extensions": known})
    assert error_of(rpc.json()) == (1, -32008, "EXTENSION_SUPPORT_REQUIRED")
    rest = await door.http.get(f"{door.base}/a2a/tasks")
    assert (rest.status_code, rest.json()["error"]["details"][0]["metadata"]) == (400, {"extension": needed})
