"""Signed cards (A2A v1.0 §8.4): verified by the official SDK as a client would, and the same on every replica."""

import base64
import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from a2a.client.card_resolver import A2ACardResolver, parse_agent_card
from a2a.types import a2a_pb2
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt import PyJWK

from tests.contract.conftest import Agent
from tests.support.broker import ROOT, BrokerProcess, register_agent
from tests.support.tokens import mint

CARD = "/.well-known/agent-card.json"
JWKS = "/.well-known/jwks.json"
SHARED = {"visibility": "shared", "sharedWith": ["*"]}
OLD, NEW = "old-key-" + "o" * 32, "new-key-" + "n" * 32
StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def door_name() -> str:
    return "jsonrpc"


@pytest.fixture
def http(shared_broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_broker.base_url, trust_env=False) as client:
        yield client


def verifier(jwks: dict[str, Any], wanted_jku: str | None = None) -> Callable[[a2a_pb2.AgentCard], None]:
    """The official verifier over a published key set."""

    def key(kid: str | None, jku: str | None) -> PyJWK:
        assert wanted_jku in (None, jku)
        return PyJWK({key["kid"]: key for key in jwks["keys"]}[kid])

    return create_signature_verifier(key, ["ES256"])


def kid_of(card: dict[str, Any]) -> str:
    protected = card["signatures"][0]["protected"]
    return json.loads(base64.urlsafe_b64decode(protected + "=" * (-len(protected) % 4)))["kid"]


async def test_the_official_client_verifies_the_card_it_fetches(agent: Agent) -> None:
    agent.register(**SHARED)
    jwks_url = f"{agent.broker.base_url}{JWKS}"
    async with httpx.AsyncClient(trust_env=False) as client:
        verify = verifier((await client.get(jwks_url)).json(), jwks_url)
        resolver = A2ACardResolver(client, f"{agent.broker.base_url}/agents/{agent.id}")
        for path in (None, ".well-known/agent.json"):
            card = await resolver.get_agent_card(path, signature_verifier=verify)
            assert card.name == agent.id


async def test_the_documentations_verification_works(agent: Agent) -> None:
    agent.register()
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/cards.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(snippet, names)
    card = await names["verified_card"](agent.broker.base_url, agent.id, mint("a"))
    assert card.name == agent.id


def test_a_changed_card_does_not_verify(agent: Agent, http: httpx.Client) -> None:
    agent.register(**SHARED)
    card = http.get(f"/agents/{agent.id}{CARD}").json()
    verify = verifier(http.get(JWKS).json())
    verify(parse_agent_card(copy.deepcopy(card)))
    for change in (
        {"name": "another"},
        {"supportedInterfaces": [{**card["supportedInterfaces"][0], "url": "https://evil.example/rpc"}]},
        {"signatures": [{**card["signatures"][0], "signature": "A" * 86}]},
    ):
        with pytest.raises(InvalidSignaturesError):
            verify(parse_agent_card(copy.deepcopy(card) | change))


def test_the_fields_of_0_3_and_of_the_oldest_clients_are_not_signed(agent: Agent, http: httpx.Client) -> None:
    agent.register(**SHARED)
    card, older = (
        http.get(f"/agents/{agent.id}/.well-known/{name}").json() for name in ("agent-card.json", "agent.json")
    )
    assert older["signatures"] == card["signatures"]
    for name in ("url", "preferredTransport", "protocolVersion", "additionalInterfaces", "security"):
        del card[name]
    verifier(http.get(JWKS).json())(parse_agent_card(card))


def test_the_keys_are_open_and_cacheable(http: httpx.Client) -> None:
    answer = http.get(JWKS)
    assert answer.headers["cache-control"] == "public, max-age=3600"
    assert "vary" not in answer.headers
    assert http.get(JWKS, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    for key in answer.json()["keys"]:
        assert "d" not in key


def test_replicas_serve_equal_bytes_and_a_key_is_rotated_without_a_gap(
    database_url: str, start_broker: StartBroker
) -> None:
    """SECRET_KEY gets its new entry at the end, then in front: cards verify with what any replica publishes."""
    settings = {"WAYSTATION_PUBLIC_URL": "https://broker.example"}
    token = mint("a", "admin", "agents:admin")
    before, twin, announced, after = (
        start_broker(database_url, WAYSTATION_SECRET_KEY=keys, **settings)
        for keys in (OLD, OLD, f"{OLD},{NEW}", f"{NEW},{OLD}")
    )
    register_agent(before.base_url, "rotating", token, **SHARED)
    answers = [httpx.get(f"{broker.base_url}/agents/rotating{CARD}") for broker in (before, twin, announced, after)]
    assert answers[0].content == answers[1].content == answers[2].content
    assert {answer.headers["etag"] for answer in answers[:3]} == {answers[0].headers["etag"]}
    assert kid_of(answers[3].json()) != kid_of(answers[0].json())
    keys = {broker: httpx.get(f"{broker.base_url}{JWKS}").json() for broker in (announced, after)}
    for answer in answers:
        for jwks in keys.values():
            verifier(jwks, f"https://broker.example{JWKS}")(parse_agent_card(answer.json()))
