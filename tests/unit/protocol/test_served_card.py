"""What an author may register, and what the broker makes of it."""

import copy
from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format

from app.errors import InvalidArgument
from app.protocol.card import Security, Site, etag, interfaces, served_card
from app.protocol.events import RESUME_EXTENSION
from app.protocol.models import AgentCard, dump, parse
from app.protocol.models.card import RegisteredCard

BASE = "https://broker.example/agents/stock"
DOORS = interfaces(Site("https://broker.example", BASE), "stock")


def a_card(**fields: Any) -> dict[str, Any]:
    skill = {"id": "lookup", "name": "Lookup", "description": "Looks a SKU up", "tags": ["stock"]}
    return {
        "name": "Stock",
        "description": "Knows the stock",
        "version": "1.0.0",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [skill],
        **fields,
    }


def registered(card: object) -> dict[str, Any]:
    """The card as it is stored."""
    return dump(parse(RegisteredCard, card, at="card", error=InvalidArgument))


def served(**fields: Any) -> dict[str, Any]:
    return served_card(registered(a_card(**fields)), DOORS)


def test_the_doors_stand_in_the_card_the_preferred_one_first() -> None:
    assert served()["supportedInterfaces"] == [
        {"url": f"{BASE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": f"{BASE}/a2a", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": f"{BASE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        {"url": f"{BASE}/a2a", "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
    ]


def test_the_grpc_door_is_listed_where_it_is_open_and_carries_the_routing_key() -> None:
    doors = interfaces(Site("https://broker.example", BASE, "broker.example:443"), "stock")
    assert served_card(a_card(), doors)["supportedInterfaces"][2] == {
        "url": "broker.example:443",
        "protocolBinding": "GRPC",
        "protocolVersion": "1.0",
        "tenant": "stock",
    }


def test_the_official_types_read_the_served_card() -> None:
    card = json_format.ParseDict(served(), a2a_pb2.AgentCard())
    assert card.capabilities.streaming
    assert card.capabilities.push_notifications
    assert card.security_schemes["bearer"].http_auth_security_scheme.scheme == "Bearer"
    assert list(card.security_requirements[0].schemes) == ["bearer"]
    assert [extension.uri for extension in card.capabilities.extensions] == [RESUME_EXTENSION]
    assert parse(AgentCard, served()).supported_interfaces[0].url == f"{BASE}/rpc"


def test_streaming_is_on_unless_the_author_turned_it_off() -> None:
    assert served()["capabilities"]["streaming"] is True
    assert served(capabilities={"streaming": True})["capabilities"]["streaming"] is True
    assert served(capabilities={"streaming": False})["capabilities"]["streaming"] is False


@pytest.mark.parametrize(("wanted", "shown"), [(None, True), (True, True), (False, False)])
def test_push_is_on_unless_the_author_turned_it_off(wanted: bool | None, shown: bool) -> None:
    assert served(capabilities={"pushNotifications": wanted})["capabilities"]["pushNotifications"] is shown


@pytest.mark.parametrize("declared", [None, True, False])
def test_a_registered_extended_card_is_declared(declared: bool | None) -> None:
    card = registered(a_card(capabilities={"extendedAgentCard": declared}))
    assert served_card(card, DOORS)["capabilities"].get("extendedAgentCard") is declared
    assert served_card(card, DOORS, extended=True)["capabilities"]["extendedAgentCard"] is True


def test_the_resume_extension_is_declared_once_beside_the_authors() -> None:
    theirs = [{"uri": "https://example.com/ext"}, {"uri": RESUME_EXTENSION, "required": True}, {"description": "x"}]
    extensions = served(capabilities={"extensions": theirs})["capabilities"]["extensions"]
    assert [extension["uri"] for extension in extensions] == ["https://example.com/ext", RESUME_EXTENSION]
    assert extensions[1]["required"] is False


def test_the_authors_security_is_kept() -> None:
    schemes = {"oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://idp.example"}}}
    card = served(securitySchemes=schemes, securityRequirements=[{"schemes": {"oidc": {"list": ["a"]}}}])
    assert card["securitySchemes"] == schemes
    assert card["securityRequirements"] == [{"schemes": {"oidc": {"list": ["a"]}}}]


def test_the_deployments_security_stands_in_for_it() -> None:
    ours = Security({"idp": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://idp.example"}}}, ())
    card = served_card(registered(a_card(securityRequirements=[{"schemes": {"gone": {}}}])), DOORS, security=ours)
    assert (list(card["securitySchemes"]), card["securityRequirements"]) == (["idp"], [])


def test_a_signature_of_another_card_is_not_served() -> None:
    assert "signatures" not in served(signatures=[{"protected": "e30", "signature": "c2ln"}])


def test_the_registered_card_is_not_changed() -> None:
    card = registered(a_card(capabilities={"extensions": [{"uri": "https://example.com/ext"}]}))
    before = copy.deepcopy(card)
    extensions = served_card(card, DOORS)["capabilities"]["extensions"]
    extensions.pop().clear()
    extensions.clear()
    assert card == before
    assert [item["uri"] for item in served_card(card, ())["capabilities"]["extensions"]][1:] == [RESUME_EXTENSION]


def test_a_card_is_stored_without_interfaces_and_unknown_fields() -> None:
    stored = registered(a_card(supportedInterfaces=[{"url": "x"}], url="https://old", default_x=1))
    assert stored == a_card()


def test_empty_required_lists_are_kept() -> None:
    card = a_card(skills=[], defaultInputModes=[], defaultOutputModes=[])
    assert registered(card) == card


def test_violations_name_the_place_in_the_body() -> None:
    card = a_card(name="", skills=[{"id": "x"}], securitySchemes={"b": {"type": "http", "scheme": "bearer"}})
    del card["version"]
    with pytest.raises(InvalidArgument) as refused:
        registered(card)
    assert dict(refused.value.violations) == {
        "card.name": "must not be empty",
        "card.version": "is required",
        "card.skills[0].name": "is required",
        "card.skills[0].description": "is required",
        "card.skills[0].tags": "is required",
        "card.securitySchemes.b": "must have exactly one of apiKeySecurityScheme, httpAuthSecurityScheme, "
        "oauth2SecurityScheme, openIdConnectSecurityScheme, mtlsSecurityScheme",
    }


@pytest.mark.parametrize("card", [None, "x", [], 5])
def test_a_card_is_an_object(card: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        registered(card)
    assert [path for path, _ in refused.value.violations] == ["card"]


def test_equal_bytes_have_equal_strong_etags() -> None:
    assert etag(b"{}") == etag(b"{}") != etag(b"{ }")
    assert etag(b"{}")[0] == etag(b"{}")[-1] == '"'


def test_dumping_a_parsed_card_gives_the_stored_card() -> None:
    card = copy.deepcopy(served())
    del card["capabilities"]["extensions"][0]["required"]
    card["securityRequirements"][0]["schemes"]["bearer"].clear()
    assert dump(parse(AgentCard, card)) == card
