"""The agent card's well-known documents (A2A v1.0 §8.2, §8.6; a2a-server.md, Agent card)."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from starlette.responses import Response

from app.auth.caller import Caller
from app.operations.agent_card import ShownCard, show_card
from app.protocol.card import Site
from app.protocol.card_v0_3 import with_v0_3
from app.protocol.legacy import legacy_card_fields
from app.protocol.models import AgentCard
from app.transports.call_context import Call, authenticate
from app.transports.documents import cached_json
from app.transports.endpoints import OPEN, Endpoint
from app.transports.urls import site

MAX_AGE_SECONDS = 60
LEGACY_MAX_AGE_SECONDS = 3600


def endpoints(base: str) -> Iterator[Endpoint]:
    """Both names of the card below ``base`` (``/agents/{agent}``, or nothing for the default agent).

    Open, because a public card needs no token; all others are judged by ``show_card``.
    """
    yield _endpoint(f"{base}/.well-known/agent-card.json", card, "The agent's card")
    yield _endpoint(f"{base}/.well-known/agent.json", older_card, "The agent's card, for older clients")


def _endpoint(path: str, handle: Callable[[Call], Awaitable[Response]], summary: str) -> Endpoint:
    return Endpoint("GET", path, OPEN, handle, "AgentCard", summary, tags=("a2a",), response=AgentCard)


async def card(call: Call) -> Response:
    """The card for clients of A2A 1.0 and 0.3, with the URLs of this service."""
    shown, _ = await _shown(call)
    return _answer(call, shown, with_v0_3(shown.card), MAX_AGE_SECONDS)


async def older_card(call: Call) -> Response:
    """The same with what clients of the older ``/tasks`` dialect read beside it.

    ``url`` is the agent's base URL: clients of ``/tasks`` append their paths to it. A2A clients from before 1.0 take it
    for the JSON-RPC endpoint, so that door is there too (``routes.mount``).
    """
    shown, at = await _shown(call)
    merged = with_v0_3(shown.card)
    merged |= legacy_card_fields(merged, shown.agent_id, at.agent)
    return _answer(call, shown, merged, LEGACY_MAX_AGE_SECONDS)


async def _shown(call: Call) -> tuple[ShownCard, Site]:
    named = call.path("agent")
    at = site(call.gateway, call.request, named)
    agent_id = named or call.gateway.settings.default_agent or ""
    return await show_card(call.gateway.operations, await caller_if_any(call), agent_id, at), at


async def caller_if_any(call: Call) -> Caller | None:
    """Who calls an open endpoint; None without a token. Raises Unauthenticated for a bad one."""
    if "authorization" not in call.request.headers:
        return None
    return (await authenticate(call.gateway, call.request)).caller


def _answer(call: Call, shown: ShownCard, body: dict[str, Any], max_age: int) -> Response:
    return cached_json(call, body, public=shown.public, max_age=max_age, modified=shown.updated_at)
