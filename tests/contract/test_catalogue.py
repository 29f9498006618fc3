"""The catalogue of cards: what each caller may see, filtered and paged."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.conftest import Agent
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint

CARD = "/.well-known/agent-card.json"
CATALOGUE = "/.well-known/agents.json"
CANARY = "canary-that-only-tenant-a-may-see"
EVERYBODY = {"visibility": "shared", "sharedWith": ["*"]}


@pytest.fixture
def door_name() -> str:
    return "jsonrpc"


@pytest.fixture
def http(shared_broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_broker.base_url, trust_env=False) as client:
        yield client


def a_card(name: str, *skills: tuple[str, list[str]], **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": name,
        "version": "1.0.0",
        "capabilities": {},
        "defaultInputModes": ["*/*"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": skill, "name": skill, "description": skill, "tags": tags} for skill, tags in skills],
        **fields,
    }


def pages(http: httpx.Client, *, token: str | None = None, **query: Any) -> list[dict[str, Any]]:
    """All pages of the catalogue."""
    found: list[dict[str, Any]] = []
    page_token = ""
    while True:
        params = query | ({"pageToken": page_token} if page_token else {})
        answer = http.get(CATALOGUE, params=params, headers=bearer(token) if token else {})
        assert answer.status_code == 200, answer.text
        found += answer.json()["agents"]
        page_token = answer.json()["nextPageToken"]
        if not page_token:
            return found


def names(cards: list[dict[str, Any]]) -> set[str]:
    return {card["name"] for card in cards}


def test_each_caller_sees_its_own_cards_those_shared_with_it_and_public_ones(agent: Agent, http: httpx.Client) -> None:
    skill = f"s-{agent.id}"
    kinds: dict[str, dict[str, Any]] = {
        "private": {},
        "private-public-card": {"cardVisibility": "public"},
        "for-b": {"visibility": "shared", "sharedWith": ["b"], "cardVisibility": "token"},
        "for-b-public-card": {"visibility": "shared", "sharedWith": ["b"]},
        "for-all-token": {**EVERYBODY, "cardVisibility": "token"},
        "for-all": EVERYBODY,
    }
    for kind, settings in kinds.items():
        # what looks like a public agent inside of a card is only text
        params = {"cardVisibility": "public", "canary": CANARY} if kind == "private" else {}
        extension = {"uri": "https://e.example", "params": params}
        card = a_card(kind, (skill, ["t"]), capabilities={"extensions": [extension]})
        agent.broker.register_agent(f"{agent.id}-{kind}", card=card, **settings)
    public = {"private-public-card", "for-b-public-card", "for-all"}
    expected = {
        None: public,
        "a": set(kinds),
        "b": public | {"for-b", "for-all-token"},
        "c": public | {"for-all-token"},
    }
    for tenant, seen in expected.items():
        token = mint(tenant) if tenant else None
        answer = http.get(CATALOGUE, params={"skill": skill}, headers=bearer(token) if token else {})
        assert names(answer.json()["agents"]) == seen, tenant
        assert (CANARY in answer.text) is (tenant == "a")
    http.delete(f"/v1/agents/{agent.id}-for-all", headers=bearer(mint("a", scope="agents:admin")))
    assert "for-all" not in names(pages(http, skill=skill))


def test_a_card_is_the_one_that_its_own_url_serves(agent: Agent, http: httpx.Client) -> None:
    agent.register(card=a_card(agent.id, (agent.id, [])), **EVERYBODY)
    (card,) = pages(http, skill=agent.id)
    assert card == http.get(f"/agents/{agent.id}{CARD}").json()


def test_filters_ask_for_one_skill_that_has_both(agent: Agent, http: httpx.Client) -> None:
    mine = agent.id
    for number, skills in enumerate(
        ([(f"{mine}-x", [f"{mine}-red"])], [(f"{mine}-x", ["blue"]), (f"{mine}-y", [f"{mine}-red"])], [])
    ):
        card = a_card(f"n{number}", *skills)
        agent.broker.register_agent(f"{mine}-{number}", card=card, **EVERYBODY)
    for query, seen in (
        ({"skill": f"{mine}-x"}, {"n0", "n1"}),
        ({"tag": f"{mine}-red"}, {"n0", "n1"}),
        ({"skill": f"{mine}-x", "tag": f"{mine}-red"}, {"n0"}),
        ({"skill": f"{mine}-x", "tag": "unknown"}, set()),
        ({"skill": f'{mine}"]}}}} OR 1=1'}, set()),
    ):
        assert names(pages(http, **query)) == seen, query


def test_pages_have_every_card_once(agent: Agent, http: httpx.Client) -> None:
    tag = f"t-{agent.id}"
    for number in range(5):
        agent.broker.register_agent(f"{agent.id}-{number}", card=a_card(f"n{number}", ("s", [tag])), **EVERYBODY)
    for size in (1, 2, 5, 100):
        found = pages(http, tag=tag, pageSize=size)
        assert [card["name"] for card in found] == [f"n{number}" for number in range(5)], size
    everything = [card["url"] for card in pages(http, pageSize=1, token=mint("a"))]
    assert everything == [card["url"] for card in pages(http, token=mint("a"))]
    assert len(everything) == len(set(everything)) >= 6


def test_a_page_of_large_cards_is_bounded_in_bytes(agent: Agent, http: httpx.Client) -> None:
    tag = f"t-{agent.id}"
    for number in range(12):
        card = a_card(f"n{number:02}", ("s", [tag]), description="x" * 250_000)
        agent.broker.register_agent(f"{agent.id}-{number:02}", card=card, **EVERYBODY)
    first = http.get(CATALOGUE, params={"tag": tag})
    assert len(first.content) < 2.5 * 1024 * 1024
    assert first.json()["nextPageToken"]
    assert len(pages(http, tag=tag)) == 12


def test_bad_queries_and_bad_tokens(agent: Agent, http: httpx.Client) -> None:
    for number in range(2):
        agent.broker.register_agent(f"{agent.id}-{number}", **EVERYBODY)
    token = http.get(CATALOGUE, params={"pageSize": 1}).json()["nextPageToken"]
    assert token
    for query in (
        {"pageToken": "garbage"},
        {"pageToken": token, "skill": "another list"},
        {"pageSize": 0},
        {"pageSize": 101},
        {"pageSize": "x"},
        {"skill": "x" * 257},
        {"skill": "a\x00b"},
        [("tag", "a"), ("tag", "b")],
    ):
        answer = http.get(CATALOGUE, params=query)
        assert (answer.status_code, answer.json()["error"]["details"][0]["reason"]) == (400, "INVALID_ARGUMENT"), query
    foreign = http.get(CATALOGUE, params={"pageToken": token}, headers=bearer(mint("a")))
    assert foreign.status_code == 400, "the token of a list that another caller has begun"
    assert http.get(CATALOGUE, headers=bearer("nonsense")).status_code == 401
    assert http.get(CATALOGUE, params={"pageSize": 0}, headers=bearer("nonsense")).status_code == 401
    assert http.post(CATALOGUE).status_code == 405


def test_the_catalogue_is_cacheable(agent: Agent, http: httpx.Client) -> None:
    agent.register(card=a_card(agent.id, (agent.id, [])), **EVERYBODY)
    query = {"skill": agent.id}
    first = http.get(CATALOGUE, params=query)
    assert first.headers["cache-control"] == "public, max-age=60"
    again = http.get(CATALOGUE, params=query, headers={"If-None-Match": f'"x", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    mine = http.get(CATALOGUE, params=query, headers=bearer(mint("a")))
    assert mine.headers["cache-control"] == "private, max-age=60"
    agent.register(card=a_card(agent.id, (agent.id, ["changed"])), **EVERYBODY)
    assert http.get(CATALOGUE, params=query, headers={"If-None-Match": first.headers["etag"]}).status_code == 200
