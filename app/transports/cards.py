"""The agent card's well-known documents (A2A v1.0 §8.2, §8.6; a2a-server.md, Agent card)."""

from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from starlette.responses import Response

from app.operations.agent_card import ShownCard, show_card
from app.protocol import strict_json
from app.protocol.card import etag, interfaces, served_card
from app.protocol.models import AgentCard
from app.transports.call_context import Call, authenticate
from app.transports.endpoints import OPEN, Endpoint
from app.transports.urls import site

MAX_AGE_SECONDS = 60
NAMES = ("agent-card.json", "agent.json")


def endpoints(base: str) -> Iterator[Endpoint]:
    """Both names of the card below ``base`` (``/agents/{agent}``, or nothing for the default agent).

    Open, because a public card needs no token; all others are judged by ``show_card``.
    """
    for name in NAMES:
        yield Endpoint(
            method="GET",
            path=f"{base}/.well-known/{name}",
            access=OPEN,
            handle=card,
            operation="AgentCard",
            summary="The agent's card",
            tags=("a2a",),
            response=AgentCard,
        )


async def card(call: Call) -> Response:
    """The card with the URLs of this service, or 304 for a tag or a date that the client has."""
    request, named = call.request, call.path("agent")
    caller = None
    if "authorization" in request.headers:
        caller = (await authenticate(call.gateway, request)).caller
    shown = await show_card(call.gateway.operations, caller, named or call.gateway.settings.default_agent or "")
    doors = interfaces(site(call.gateway, request, named), shown.agent_id)
    body = strict_json.dumps(served_card(shown.card, doors)).encode()
    headers = _headers(shown, etag(body))
    if _is_fresh(call, shown, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, "application/json")


def _headers(shown: ShownCard, tag: str) -> dict[str, str]:
    return {
        "ETag": tag,
        "Last-Modified": format_datetime(_whole_seconds(shown.updated_at), usegmt=True),
        "Cache-Control": f"{'public' if shown.public else 'private'}, max-age={MAX_AGE_SECONDS}",
        "Vary": "Authorization, Host",
    }


def _is_fresh(call: Call, shown: ShownCard, tag: str) -> bool:
    """RFC 9110 §13.1: If-None-Match (a list, or ``*``, compared weakly) wins over If-Modified-Since."""
    tags = call.request.headers.getlist("if-none-match")
    if tags:
        asked = {entry.strip().removeprefix("W/") for line in tags for entry in line.split(",")}
        return "*" in asked or tag in asked
    since = call.request.headers.get("if-modified-since")
    if since is None:
        return False
    try:
        moment = parsedate_to_datetime(since)
    except (ValueError, OverflowError):
        return False
    return _whole_seconds(shown.updated_at) <= (moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _whole_seconds(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)
