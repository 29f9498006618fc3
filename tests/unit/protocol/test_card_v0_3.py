"""One JSON for A2A 1.0 and 0.3, read by the official types of both (a2a-server.md, v0.3 compatibility)."""

import copy
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as v0_3
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2
from google.protobuf import json_format

from app.protocol.card import Site, interfaces, served_card
from app.protocol.card_v0_3 import with_v0_3
from app.protocol.legacy import legacy_card_fields

BASE = "https://broker.example/agents/stock"
SCHEMES: dict[str, dict[str, Any]] = {
    "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "d"}},
    "http": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
    "oauth2": {
        "oauth2SecurityScheme": {
            "flows": {"authorizationCode": {"authorizationUrl": "https://a", "tokenUrl": "https://t", "scopes": {}}},
            "oauth2MetadataUrl": "https://m",
        }
    },
    "openIdConnect": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://idp.example"}},
    "mutualTLS": {"mtlsSecurityScheme": {"description": "a certificate"}},
}


def served(**fields: Any) -> dict[str, Any]:
    skill = {"id": "lookup", "name": "Lookup", "description": "Looks a SKU up", "tags": ["stock"]}
    card: dict[str, Any] = {
        "name": "Stock",
        "description": "Knows the stock",
        "version": "1.0.0",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [skill],
        **fields,
    }
    return served_card(card, interfaces(Site("https://broker.example", BASE, "broker.example:443"), "stock"))


def test_v0_3_reads_its_url_its_transports_and_its_version() -> None:
    card = v0_3.AgentCard.model_validate(with_v0_3(served()))
    assert (card.url, card.preferred_transport, card.protocol_version) == (f"{BASE}/rpc", "JSONRPC", "0.3.0")
    assert [(door.url, door.transport) for door in card.additional_interfaces or ()] == [
        (f"{BASE}/rpc", "JSONRPC"),
        (f"{BASE}/a2a", "HTTP+JSON"),
    ]
    assert card.supports_authenticated_extended_card is None
    assert card.capabilities.streaming
    assert card.security == [{"bearer": []}]
    extended = with_v0_3(served(capabilities={"extendedAgentCard": True}))
    assert v0_3.AgentCard.model_validate(extended).supports_authenticated_extended_card is True


def test_v1_0_reads_the_same_card_with_and_without_the_fields_of_0_3() -> None:
    card = served(securitySchemes=SCHEMES, securityRequirements=[{"schemes": {"http": {}}}])
    plain = json_format.ParseDict(card, a2a_pb2.AgentCard())
    assert json_format.ParseDict(with_v0_3(card), a2a_pb2.AgentCard(), ignore_unknown_fields=True) == plain
    assert parse_agent_card(copy.deepcopy(with_v0_3(card))) == plain, "as the official client's resolver reads it"


@pytest.mark.parametrize("kind", SCHEMES)
def test_a_security_scheme_reads_in_0_3(kind: str) -> None:
    requirements = [{"schemes": {"mine": {"list": ["a"]}}}]
    skill = {"id": "s", "name": "s", "description": "s", "tags": [], "securityRequirements": requirements}
    card = served(securitySchemes={"mine": SCHEMES[kind]}, securityRequirements=requirements, skills=[skill])
    merged = with_v0_3(card)
    read = v0_3.AgentCard.model_validate(merged)
    assert read.security_schemes is not None
    assert read.security_schemes["mine"].root.type == kind
    assert read.security == [{"mine": ["a"]}] == read.skills[0].security
    # and it says what the official server says of the same card in 0.3's fields
    official = agent_card_to_dict(json_format.ParseDict(card, a2a_pb2.AgentCard()))
    assert v0_3.AgentCard.model_validate(official).security_schemes == read.security_schemes


@pytest.mark.parametrize(
    "flows",
    [
        {"implicit": {}},
        {"password": {}},
        {"clientCredentials": {"tokenUrl": "https://t", "scopes": {"a": "b"}}},
        {"deviceCode": {"deviceAuthorizationUrl": "https://d", "tokenUrl": "https://t", "scopes": {}}},
    ],
)
def test_every_flow_leaves_the_card_readable_in_0_3(flows: dict[str, Any]) -> None:
    card = served(securitySchemes={"mine": {"oauth2SecurityScheme": {"flows": flows}}})
    v0_3.AgentCard.model_validate(with_v0_3(card))


def test_a_key_in_a_place_that_0_3_does_not_know_leaves_the_card_readable() -> None:
    scheme = {"apiKeySecurityScheme": {"location": "body", "name": "key"}}
    v0_3.AgentCard.model_validate(with_v0_3(served(securitySchemes={"mine": scheme})))


def test_the_card_is_not_changed_by_it() -> None:
    card = served(securitySchemes=SCHEMES)
    before = copy.deepcopy(card)
    with_v0_3(card)
    assert card == before


def test_the_oldest_fields_leave_the_card_readable_for_both() -> None:
    card = with_v0_3(served())
    merged = {**card, **legacy_card_fields(card, "stock", BASE), "url": card["url"]}
    assert v0_3.AgentCard.model_validate(merged) == v0_3.AgentCard.model_validate(
        {**card, "capabilities": {**card["capabilities"], "stateTransitionHistory": True}}
    )
    assert parse_agent_card(copy.deepcopy(merged)) == parse_agent_card(card)
