"""GetExtendedAgentCard (A2A v1.0 §3.1.11; a2a-server.md, Unary semantics) at every door."""

from typing import Any

import httpx
import pytest
from a2a.client.card_resolver import parse_agent_card

from tests.contract.conftest import Agent
from tests.contract.doors import DoorError, say
from tests.contract.every_door import DOORS
from tests.contract.test_card_signatures import verifier
from tests.support.tokens import bearer, mint

BROKER_ENVIRONMENT = {"WAYSTATION_GRPC_PORT": "0"}
CARD = "/.well-known/agent-card.json"
JWKS = "/.well-known/jwks.json"
SECRET = "only for those who are known"


@pytest.fixture(params=[name for name in DOORS if name != "legacy"])
def door_name(request: pytest.FixtureRequest) -> str:
    return request.param


async def fetch(agent: Agent, path: str) -> dict[str, Any]:
    """A document of the broker, for an owner of the agent."""
    async with httpx.AsyncClient(base_url=agent.broker.base_url, trust_env=False, headers=bearer(mint("a"))) as client:
        return (await client.get(path)).json()


def extended(agent: Agent, **fields: Any) -> dict[str, Any]:
    skill = {"id": "hidden", "name": "hidden", "description": SECRET, "tags": []}
    card = agent.broker.register_agent(agent.id)["card"]
    return {**card, "description": SECRET, "skills": [*card["skills"], skill], **fields}


async def refusal(agent: Agent, **claims: Any) -> str:
    with pytest.raises(DoorError) as refused:
        await agent.door(**claims).call("GetExtendedAgentCard", {})
    return refused.value.reason


async def test_the_extended_card_has_the_doors_of_the_public_one_and_declares_itself(agent: Agent) -> None:
    agent.register(extendedCard=extended(agent), visibility="shared", sharedWith=["b"])
    card = await agent.door().call("GetExtendedAgentCard", {})
    public = await fetch(agent, f"/agents/{agent.id}{CARD}")
    assert (card["description"], [skill["id"] for skill in card["skills"]]) == (SECRET, ["test", "hidden"])
    assert card["supportedInterfaces"] == public["supportedInterfaces"]
    assert [door["protocolBinding"] for door in card["supportedInterfaces"]] == [
        "JSONRPC",
        "HTTP+JSON",
        "GRPC",
        "JSONRPC",
        "HTTP+JSON",
    ]
    assert card["supportedInterfaces"][2] == {
        "url": agent.broker.grpc_target,
        "protocolBinding": "GRPC",
        "protocolVersion": "1.0",
        "tenant": agent.id,
    }
    assert card["capabilities"]["extendedAgentCard"] is True
    assert public["capabilities"]["extendedAgentCard"] is True
    assert public["supportsAuthenticatedExtendedCard"] is True
    assert SECRET not in str(public)
    assert (await agent.door("b").call("GetExtendedAgentCard", {}))["description"] == SECRET


async def test_the_extended_card_is_signed_at_every_door(agent: Agent) -> None:
    agent.register(extendedCard=extended(agent))
    card = await agent.door().call("GetExtendedAgentCard", {})
    verifier(await fetch(agent, JWKS), f"{agent.broker.base_url}{JWKS}")(parse_agent_card(card))


async def test_only_readers_that_may_see_the_agent_get_it(agent: Agent) -> None:
    agent.register(extendedCard=extended(agent), cardVisibility="public")
    assert await refusal(agent, tenant="b") == "NOT_FOUND", "a public card makes no public extended card"
    assert await refusal(agent, scope="tasks:write tasks:cancel") == "INSUFFICIENT_SCOPE"
    assert (await agent.door(scope="tasks:read").call("GetExtendedAgentCard", {}))["description"] == SECRET


async def test_unsharing_takes_the_extended_card_away_from_those_with_old_tasks(agent: Agent) -> None:
    agent.register(extendedCard=extended(agent), visibility="shared", sharedWith=["b"])
    task = await agent.door("b").send(say("hello"), now=True)
    agent.register(extendedCard=extended(agent))
    assert (await agent.door("b").get(task["id"]))["id"] == task["id"]
    assert await refusal(agent, tenant="b") == "NOT_FOUND"


async def test_not_declared_is_unsupported_and_declared_but_absent_is_not_configured(agent: Agent) -> None:
    assert await refusal(agent) == "UNSUPPORTED_OPERATION"
    card = extended(agent)
    for declared, reason in ((False, "UNSUPPORTED_OPERATION"), (True, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")):
        agent.register(card={**card, "capabilities": {"extendedAgentCard": declared}})
        assert await refusal(agent) == reason
        shown = await fetch(agent, f"/agents/{agent.id}{CARD}")
        assert shown["capabilities"]["extendedAgentCard"] is declared


async def test_what_was_registered_reads_back_and_a_replacement_without_it_removes_it(agent: Agent) -> None:
    card = extended(agent)
    assert agent.broker.register_agent(agent.id, extendedCard=card)["extendedCard"] == card
    assert "extendedCard" not in agent.broker.register_agent(agent.id, extendedCard=None)
    assert await refusal(agent) == "UNSUPPORTED_OPERATION"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "extendedCard.name"),
        ({"skills": [{"id": "x"}]}, "extendedCard.skills[0].name"),
        ({"description": "x" * 300_000}, "extendedCard"),
    ],
)
async def test_a_bad_extended_card_is_refused_at_registration(agent: Agent, change: dict[str, Any], field: str) -> None:
    card = extended(agent)
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.put(
            f"{agent.broker.base_url}/v1/agents/{agent.id}",
            json={"card": card, "extendedCard": card | change},
            headers=bearer(mint("a", scope="agents:admin")),
        )
    assert answer.status_code == 400
    (violations,) = [
        detail["fieldViolations"] for detail in answer.json()["error"]["details"] if "fieldViolations" in detail
    ]
    assert field in [violation["field"] for violation in violations]
