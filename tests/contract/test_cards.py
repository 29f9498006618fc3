"""The card's documents (a2a-server.md, Agent card)."""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from tests.contract.conftest import Agent
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint

BROKER_ENVIRONMENT = {"WAYSTATION_DEFAULT_AGENT": "front-desk", "WAYSTATION_TRUSTED_PROXIES": "10.0.0.0/8, 127.0.0.2"}
CARD = "/.well-known/agent-card.json"


@pytest.fixture
def door_name() -> str:
    return "jsonrpc"


@pytest.fixture
def http(shared_broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_broker.base_url, trust_env=False) as client:
        yield client


@pytest.mark.parametrize("name", ["agent-card.json", "agent.json"])
def test_a_private_card_needs_a_token_and_equals_an_unknown_one(agent: Agent, http: httpx.Client, name: str) -> None:
    paths = [f"/agents/{id}/.well-known/{name}" for id in (agent.id, "unknown")]
    without = [http.get(path) for path in paths]
    assert [answer.status_code for answer in without] == [401, 401]
    assert without[0].content == without[1].content
    foreign = [http.get(path, headers=bearer(mint("b"))) for path in paths]
    assert [answer.status_code for answer in foreign] == [404, 404]
    assert foreign[0].content == foreign[1].content
    assert {key: value for key, value in foreign[0].headers.items() if key != "date"} == {
        key: value for key, value in foreign[1].headers.items() if key != "date"
    }
    own = http.get(paths[0], headers=bearer(mint("a")))
    assert (own.status_code, own.json()["name"]) == (200, agent.id)
    assert own.headers["cache-control"].startswith("private, max-age=")
    assert http.get(paths[0], headers=bearer("nonsense")).status_code == 401


def test_a_shared_card_is_public_unless_it_says_otherwise(agent: Agent, http: httpx.Client) -> None:
    path = f"/agents/{agent.id}{CARD}"
    agent.register(visibility="shared", sharedWith=["b"])
    assert http.get(path).headers["cache-control"].startswith("public, max-age=")
    agent.register(visibility="shared", sharedWith=["b"], cardVisibility="token")
    assert http.get(path).status_code == 401
    assert http.get(path, headers=bearer(mint("b"))).status_code == 200
    assert http.get(path, headers=bearer(mint("c"))).status_code == 404


def test_the_card_lists_the_doors_it_stands_at(agent: Agent, http: httpx.Client) -> None:
    agent.register(visibility="shared", sharedWith=["*"])
    card = http.get(f"/agents/{agent.id}{CARD}").json()
    base = f"{http.base_url}".rstrip("/") + f"/agents/{agent.id}"
    assert [(i["protocolBinding"], i["protocolVersion"], i["url"]) for i in card["supportedInterfaces"]] == [
        ("JSONRPC", "1.0", f"{base}/rpc"),
        ("HTTP+JSON", "1.0", f"{base}/a2a"),
        ("JSONRPC", "0.3", f"{base}/rpc"),
        ("HTTP+JSON", "0.3", f"{base}/a2a"),
    ]
    assert card["capabilities"]["streaming"] is True
    assert card["capabilities"]["extensions"][0]["uri"] == "https://waystation.dev/ext/resume/v1"


def test_older_clients_find_their_fields_in_agent_json(agent: Agent, http: httpx.Client) -> None:
    """``url`` serves two kinds: those of /tasks append their paths to it, A2A's from before 1.0 POST JSON-RPC to it."""
    agent.register(visibility="shared", sharedWith=["*"])
    card = http.get(f"/agents/{agent.id}{CARD}").json()
    answer = http.get(f"/agents/{agent.id}/.well-known/agent.json")
    assert answer.headers["cache-control"] == "public, max-age=3600"
    older = answer.json()
    assert older["url"] == f"{str(http.base_url).rstrip('/')}/agents/{agent.id}"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": str(uuid4())}}
    for url in (older["url"], older["url"] + "/", card["url"], card["url"] + "/"):
        assert http.post(url, json=call, headers=bearer(mint("a"))).json()["error"]["code"] == -32001, url
    assert http.post(f"{older['url']}/tasks", json={}, headers=bearer(mint("a"))).status_code == 400
    assert (older["id"], older["authentication"]) == (agent.id, {"schemes": ["bearer", "api-key"]})
    assert older["capabilities"].pop("stateTransitionHistory") is True
    assert {**older, "url": card["url"]}.items() >= card.items()


def test_a2a_java_749_etag_and_304_with_a_list_of_tags(agent: Agent, http: httpx.Client) -> None:
    agent.register(visibility="shared", sharedWith=["*"])
    path = f"/agents/{agent.id}{CARD}"
    first = http.get(path)
    tag, modified = first.headers["etag"], first.headers["last-modified"]
    for headers, status in (
        ({"If-None-Match": tag}, 304),
        ({"If-None-Match": f'"other", W/{tag}'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"other"'}, 200),
        ({"If-None-Match": '"other"', "If-Modified-Since": modified}, 200),
        ({"If-Modified-Since": modified}, 304),
        ({"If-Modified-Since": "Mon, 01 Jan 2001 00:00:00 GMT"}, 200),
        ({"If-Modified-Since": "yesterday"}, 200),
        ({"If-Modified-Since": f"Mon, 01 Jan {'9' * 20} 00:00:00 GMT"}, 200),
        ({"If-Modified-Since": f"Mon, 01 Jan 2020 00:00:00 +{'9' * 20}"}, 200),
    ):
        answer = http.get(path, headers=headers)
        assert (answer.status_code, answer.headers["etag"]) == (status, tag), headers
        assert bool(answer.content) is (status == 200)
    assert http.head(path).headers["etag"] == tag


def test_a2a_js_435_the_etag_follows_the_card(agent: Agent, http: httpx.Client) -> None:
    agent.register(visibility="shared", sharedWith=["*"])
    path = f"/agents/{agent.id}{CARD}"
    first = http.get(path)
    assert first.headers["vary"] == "Authorization, Host, X-Forwarded-Host, X-Forwarded-Proto"
    assert http.get(path, headers={"Host": "other.example"}).headers["etag"] != first.headers["etag"]
    agent.register(visibility="shared", sharedWith=["*"], extendedCard=agent.broker.register_agent(agent.id)["card"])
    changed = http.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (changed.status_code, changed.json()["capabilities"]["extendedAgentCard"]) == (200, True)


def test_the_default_agent_is_at_the_root_too(shared_broker: BrokerProcess, http: httpx.Client) -> None:
    for path in (CARD, "/.well-known/agent.json"):
        assert http.get(path).status_code == 401, "not registered yet: as for an unknown agent"
    shared_broker.register_agent("front-desk", visibility="shared", sharedWith=["*"])
    base = f"{http.base_url}".rstrip("/")
    card = http.get(CARD)
    assert {interface["url"] for interface in card.json()["supportedInterfaces"]} == {f"{base}/rpc", f"{base}/a2a"}
    headers = bearer(mint("a")) | {"A2A-Version": "1.0"}
    envelope = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    for path in ("/", "/rpc", "/rpc/"):
        assert http.post(path, json=envelope, headers=headers).json()["result"]["tasks"] == []
    assert http.get("/a2a/tasks", headers=headers).json()["tasks"] == []
    assert http.get("/a2a/front-desk/tasks", headers=headers).json()["tasks"] == []
