"""The catalogue: the cards that somebody may see (A2A v1.0 §8.2). Called by ``transports.catalogue``.

Without a token those are the public ones; with one also those of the caller's own agents and of those shared with its
tenant. A card here is the card that the agent's own URL serves.
"""

from collections.abc import Callable

from app.auth.caller import Caller
from app.ledger import catalogue
from app.ledger.rows import JsonObject
from app.operations.deps import Operations
from app.operations.paging import PageTokens
from app.protocol.card import Site

DEFAULT_PAGE_SIZE = 50


async def list_cards(
    ops: Operations,
    caller: Caller | None,
    locate: Callable[[str], Site],
    *,
    skill: str = "",
    tag: str = "",
    page_size: int = DEFAULT_PAGE_SIZE,
    page_token: str = "",
) -> tuple[list[JsonObject], str]:
    """A page of AgentCards by agent id, and the token of the next page ("" at the end; a page may be short or empty).

    ``locate`` is the site of an agent, by its id. ``skill`` (an id) and ``tag`` ask for a skill that has both. Raises
    InvalidArgument for a token of another list or caller.
    """
    tenant = None if caller is None else caller.tenant
    tokens = PageTokens(ops.handles, "catalogue", [tenant, skill, tag])
    page = await catalogue.list_cards(
        ops.db,
        tenant,
        like=_like(skill, tag),
        after=tokens.after(page_token) or "",
        limit=page_size,
    )
    cards = [await ops.cards.card(agent, locate(agent.agent_id)) for agent in page.agents]
    return cards, tokens.next(page.after) if page.after else ""


def _like(skill: str, tag: str) -> JsonObject:
    wanted: JsonObject = {}
    if skill:
        wanted["id"] = skill
    if tag:
        wanted["tags"] = [tag]
    return {"card": {"skills": [wanted]}} if wanted else catalogue.EVERYTHING
