"""Cards as they leave the broker (operations/served_cards.py): what is done for a page of them holds nobody up."""

import asyncio
from datetime import UTC, datetime

from app.ledger.rows import Agent
from app.operations.agent_config import parse_config, stored
from app.operations.served_cards import ServedCards
from app.protocol.card import Site
from tests.support.broker import card

PAGE = 20


async def test_others_have_their_turn_between_the_cards_of_a_page() -> None:
    cards, site = ServedCards([b"x" * 32]), Site("https://broker.example", "https://broker.example/agents/a")
    agents = [
        Agent(f"a{number}", "t", stored(parse_config({"card": card(f"a{number}")})), 1, datetime.now(UTC))
        for number in range(PAGE)
    ]
    made = asyncio.create_task(_all(cards, agents, site))
    turns = 0
    while not made.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= PAGE
    assert len(await made) == PAGE


async def _all(cards: ServedCards, agents: list[Agent], site: Site) -> list[object]:
    return [await cards.card(agent, site) for agent in agents]
