"""The documents about all agents: the catalogue of cards, and the keys that verify them. Mounted by ``routes``."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from app.errors import InvalidArgument
from app.operations.catalogue import DEFAULT_PAGE_SIZE, list_cards
from app.operations.served_cards import JWKS_PATH
from app.protocol.card_v0_3 import with_v0_3
from app.protocol.models import AgentCard, parse
from app.protocol.models.scalars import MAX_ID_CHARACTERS, PageSize, Text
from app.transports.call_context import Call
from app.transports.cards import MAX_AGE_SECONDS, caller_if_any
from app.transports.documents import cached_json
from app.transports.endpoints import OPEN, Endpoint
from app.transports.urls import site

JWKS_MAX_AGE_SECONDS = 3600
CATALOGUE_PATH = "/.well-known/agents.json"


class CatalogueQuery(BaseModel):
    """The query of the catalogue."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    skill: Annotated[Text, Field(max_length=MAX_ID_CHARACTERS)] = ""
    tag: Annotated[Text, Field(max_length=MAX_ID_CHARACTERS)] = ""
    page_size: PageSize = None
    page_token: Annotated[Text, Field(max_length=4096)] = ""


class Catalogue(BaseModel):
    """A page of cards."""

    model_config = ConfigDict(alias_generator=to_camel)

    agents: list[AgentCard]
    next_page_token: str


async def catalogue(call: Call) -> Response:
    """The cards that the caller may see; access is judged before the query."""
    caller = await caller_if_any(call)
    query = parse(CatalogueQuery, call.query(), error=InvalidArgument)
    cards, token = await list_cards(
        call.gateway.operations,
        caller,
        lambda agent_id: site(call.gateway, call.request, agent_id),
        skill=query.skill,
        tag=query.tag,
        page_size=query.page_size or DEFAULT_PAGE_SIZE,
        page_token=query.page_token,
    )
    body = {"agents": [with_v0_3(card) for card in cards], "nextPageToken": token}
    return cached_json(call, body, public=caller is None, max_age=MAX_AGE_SECONDS)


async def jwks(call: Call) -> Response:
    """The public keys of card signatures (RFC 7517)."""
    keys = call.gateway.operations.cards.jwks
    return cached_json(call, keys, public=True, max_age=JWKS_MAX_AGE_SECONDS, varies=False)


ENDPOINTS = (
    Endpoint(
        "GET", CATALOGUE_PATH, OPEN, catalogue, "AgentCards", "The cards you may see", tags=("a2a",),
        response=Catalogue,
        query={
            "skill": "the id of a skill that the agent has",
            "tag": "a tag of a skill that the agent has",
            "pageSize": "1..100, default 50",
            "pageToken": "nextPageToken of the page before",
        },
    ),
    Endpoint(
        "GET", JWKS_PATH, OPEN, jwks, "CardKeys", "The keys that verify the signatures of cards", tags=("a2a",),
        response={"type": "object"},
    ),
)  # fmt: skip
