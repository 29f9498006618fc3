"""What each official client keeps of a card is what the broker signed (A2A v1.0 §8.4.1)."""

import httpx
import pytest
from a2a.client.card_resolver import parse_agent_card

from tests.contract.test_card_signatures import JWKS, verifier
from tests.interop.conftest import Agent

pytestmark = pytest.mark.interop


async def test_a_card_verifies_as_the_client_read_it(agent: Agent) -> None:
    card = await agent.user().card()
    async with httpx.AsyncClient(trust_env=False) as client:
        jwks = (await client.get(agent.replicas[0].base_url + JWKS)).json()
    verifier(jwks)(parse_agent_card(card))
