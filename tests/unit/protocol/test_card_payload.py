"""The bytes that a card's signature covers: the official SDK's form, and the specification's (A2A v1.0 §8.4.1)."""

import json
from typing import Any

import pytest
from a2a.types import a2a_pb2
from a2a.utils.signing import _canonicalize_agent_card
from google.protobuf import json_format

from app.protocol.card import Site, interfaces, served_card
from app.protocol.card_payload import signed_payloads
from app.protocol.card_v0_3 import with_v0_3


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
    return served_card(card, interfaces(Site("https://b.example", "https://b.example/agents/x"), "x"))


CARDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "empty lists": {"skills": [], "defaultInputModes": [], "defaultOutputModes": []},
    "not ASCII": {"name": "Lager – 在庫 🏬", "description": "\u2028\u0085\x7f"},
    "optional fields": {"documentationUrl": "", "iconUrl": "https://i", "capabilities": {"streaming": False}},
    "params": {
        "capabilities": {
            "extensions": [
                {
                    "uri": "https://e.example",
                    "required": True,
                    "params": {"a": 1, "b": 1.5, "c": [1e21, 0.000001, "", {}], "é": None, "ﬁ": {"x": ""}, "n": -0.0},
                }
            ]
        }
    },
    "an empty scheme": {"securitySchemes": {"m": {"mtlsSecurityScheme": {}}}},
    "signed before": {"signatures": [{"protected": "e30", "signature": "c2ln"}]},
}


@pytest.mark.parametrize("name", CARDS)
def test_the_first_payload_is_what_the_official_verifier_makes_of_the_served_json(name: str) -> None:
    card = served(**CARDS[name])
    received = json.loads(json.dumps(with_v0_3({**card, "signatures": [{"protected": "e30", "signature": "c2ln"}]})))
    message = json_format.ParseDict(received, a2a_pb2.AgentCard(), ignore_unknown_fields=True)
    assert signed_payloads(card)[0].decode() == _canonicalize_agent_card(message)


def test_the_second_payload_keeps_what_the_specification_keeps() -> None:
    """The example of §8.4.1: REQUIRED fields and set optional ones stay, an empty optional list does not."""
    card = {
        "name": "Example Agent",
        "description": "d",
        "version": "1",
        "supportedInterfaces": [],
        "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
        "defaultInputModes": [],
        "defaultOutputModes": [],
        "skills": [],
    }
    ours, specified = signed_payloads(card)
    assert ours == (
        b'{"capabilities":{"pushNotifications":false,"streaming":false},"description":"d","name":"Example Agent",'
        b'"version":"1"}'
    )
    assert specified == (
        b'{"capabilities":{"pushNotifications":false,"streaming":false},"defaultInputModes":[],"defaultOutputModes":[],'
        b'"description":"d","name":"Example Agent","skills":[],"supportedInterfaces":[],"version":"1"}'
    )


def test_a_card_without_anything_empty_has_one_payload() -> None:
    schemes = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
    requirements = [{"schemes": {"bearer": {"list": ["tasks:read"]}}}]
    assert len(signed_payloads(served(securitySchemes=schemes, securityRequirements=requirements))) == 1
    assert len(signed_payloads(served())) == 2
