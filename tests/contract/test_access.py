"""Every route of the OpenAPI document against every kind of token (security.md, Tokens; native-api.md).

Access is judged before path, query and body: the paths here name nothing that exists and the bodies are garbage, and
still a bad token is 401 and a good one without the scope 403.
"""

import time
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Route

from app.auth.scopes import SCOPES
from app.transports.call_context import Call
from app.transports.endpoints import Endpoint, mount_endpoints
from app.transports.gateway import Gateway
from tests.contract.doors import Json
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint

BROKER_ENVIRONMENT = {"WAYSTATION_DEFAULT_AGENT": "front-desk"}
PUBLIC = frozenset(
    {
        "/livez",
        "/readyz",
        "/openapi.json",
        "/docs",
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/agents/{agent}/.well-known/agent-card.json",
        "/agents/{agent}/.well-known/agent.json",
        "/.well-known/oauth-protected-resource",
        "/.well-known/agents.json",
        "/.well-known/jwks.json",
    }
)
NOBODY = {
    "none": {},
    "garbage": bearer("garbage"),
    "expired": bearer(mint("a", seconds=-3600, iat=int(time.time()) - 7200)),
    "another secret": bearer(mint("a", secret="x" * 40)),
    "another audience": bearer(mint("a", aud="elsewhere")),
    "basic": {"Authorization": "Basic YTpi"},
}


@pytest.fixture(scope="module")
def http(shared_broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_broker.base_url, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def routes(http: httpx.Client) -> list[tuple[str, str, list[str]]]:
    """Method, template and accepted scopes of every route; [] is open."""
    document: Json = http.get("/openapi.json").json()
    return [
        (method.upper(), path, [scope for rule in operation.get("security", []) for scope in rule["bearer"]])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def call(http: httpx.Client, method: str, template: str, headers: dict[str, str]) -> httpx.Response:
    path = template
    for name in ("agent", "id", "task_id", "lease_id"):
        path = path.replace(f"{{{name}}}", "no such thing")
    return http.request(method, path, headers={"Content-Type": "application/json"} | headers, content=b"{garbage")


def test_the_document_has_all_doors(routes: list[tuple[str, str, list[str]]]) -> None:
    described = {(method, path) for method, path, _ in routes}
    for expected in (
        ("POST", "/agents/{agent}/rpc"),
        ("POST", "/"),
        ("POST", "/agents/{agent}/a2a/message:send"),
        ("GET", "/agents/{agent}/a2a/tasks/{id}:subscribe"),
        ("POST", "/a2a/tasks/{id}:subscribe"),
        ("GET", "/v1/tasks/{id}/events"),
        ("POST", "/v1/leases/{lease_id}/events"),
        ("PUT", "/v1/agents/{agent}"),
        ("GET", "/metrics"),
    ):
        assert expected in described


def test_only_these_routes_are_open(routes: list[tuple[str, str, list[str]]]) -> None:
    assert {path for _, path, scopes in routes if not scopes} <= PUBLIC
    assert all(SCOPES.issuperset(scopes) for _, _, scopes in routes)


@pytest.mark.parametrize("kind", NOBODY)
def test_no_route_answers_a_bad_token(http: httpx.Client, routes: list[tuple[str, str, list[str]]], kind: str) -> None:
    for method, path, scopes in routes:
        if not scopes:
            continue
        answer = call(http, method, path, NOBODY[kind])
        assert (answer.status_code, reason(answer)) == (401, "UNAUTHENTICATED"), (method, path)
        challenge = answer.headers["www-authenticate"]
        assert challenge.startswith('Bearer resource_metadata="http://')
        assert ('error="invalid_token"' in challenge) is (kind != "none")


def test_no_route_answers_a_token_without_its_scope(
    http: httpx.Client, routes: list[tuple[str, str, list[str]]]
) -> None:
    for method, path, scopes in routes:
        if not scopes:
            continue
        others = " ".join(sorted(SCOPES.difference(scopes)))
        answer = call(http, method, path, bearer(mint("a", scope=others, agents=["no such thing"])))
        assert (answer.status_code, reason(answer)) == (403, "INSUFFICIENT_SCOPE"), (method, path)
        assert f'scope="{" ".join(scopes)}"' in answer.headers["www-authenticate"]


def test_with_the_scope_nothing_is_worse_than_not_found(
    http: httpx.Client, routes: list[tuple[str, str, list[str]]]
) -> None:
    for method, path, scopes in routes:
        if scopes:
            answer = call(http, method, path, bearer(mint("a", scope=scopes[0], agents=[])))
            assert answer.status_code < 500, (method, path, answer.text)


def test_json_rpc_judges_the_operations_scope_before_its_params(
    http: httpx.Client, shared_broker: BrokerProcess
) -> None:
    shared_broker.register_agent("clerk")
    headers = bearer(mint("a", scope="tasks:read")) | {"A2A-Version": "1.0"}
    for method, scope in (("SendMessage", "tasks:write"), ("CancelTask", "tasks:cancel")):
        envelope = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"nonsense": True}}
        answer = http.post("/agents/clerk/rpc", json=envelope, headers=headers)
        assert (answer.status_code, answer.json()["error"]["data"][0]["metadata"]) == (403, {"scope": scope})


def test_a_token_in_the_query_is_refused(http: httpx.Client) -> None:
    token = mint("a")
    assert http.get(f"/v1/tasks?access_token={token}").status_code == 401
    assert http.get(f"/v1/tasks?access_token={token}", headers=bearer(token)).status_code == 400


def test_unknown_foreign_and_malformed_ids_are_one_answer(http: httpx.Client, shared_broker: BrokerProcess) -> None:
    shared_broker.register_agent("porter")
    envelope = {
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "canary"}]},
        "configuration": {"returnImmediately": True},
    }
    owner = bearer(mint("a")) | {"A2A-Version": "1.0"}
    task = http.post("/agents/porter/a2a/message:send", json=envelope, headers=owner).json()["task"]
    stranger = bearer(mint("b"))
    for suffix in ("", "/events", "/turns"):
        answers = [
            http.get(f"/v1/tasks/{task_id}{suffix}", headers=stranger)
            for task_id in (task["id"], "01900000-0000-7000-8000-000000000000", "malformed", task["id"].upper())
        ]
        assert {answer.status_code for answer in answers} == {404}
        assert len({answer.content for answer in answers}) == 1
        assert len({tuple(sorted((k, v) for k, v in answer.headers.items() if k != "date")) for answer in answers}) == 1
    assert http.get("/v1/tasks", headers=stranger).json() == {"tasks": [], "nextPageToken": ""}


async def nothing(_: Call) -> Response:
    return Response()


@pytest.mark.parametrize("access", [(), ("tasks:explode",), "tasks:read", None])
def test_a_route_without_a_scope_is_not_mounted(access: Any) -> None:
    endpoint = Endpoint("GET", "/x", access, nothing, "X", "x")
    app = FastAPI()
    with pytest.raises(TypeError, match="scope"):
        mount_endpoints(app, cast("Gateway", None), [endpoint])
    assert [route for route in app.routes if isinstance(route, Route) and route.path == "/x"] == []


def reason(answer: httpx.Response) -> str:
    error = answer.json()["error"]
    return (error.get("details") or error["data"])[0]["reason"]
