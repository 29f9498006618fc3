"""Agent cards: what the broker serves is made of the card that an author registered (``models.card.RegisteredCard``).

``served_card`` is called by ``operations.served_cards``, which signs what it makes; ``protocol.card_v0_3`` adds what
older clients read.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.protocol.events import RESUME_EXTENSION
from app.protocol.version import V0_3, V1_0

JSONRPC: Final = "JSONRPC"
HTTP_JSON: Final = "HTTP+JSON"
GRPC: Final = "GRPC"

_RESUME: Final = {
    "uri": RESUME_EXTENSION,
    "description": "Streams can be resumed by event sequence number; what the broker adds stands under this URI",
    "required": False,
}
_BEARER: Final = {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}}


@dataclass(frozen=True, slots=True)
class Site:
    """Where a client reaches the service and, in it, one agent: found by the door at which the client asks.

    ``service`` is scheme and authority; ``agent`` is the base URL of the agent's HTTP doors; ``grpc`` is the gRPC
    door's host:port, "" where that door is not open. No slash at any end.
    """

    service: str
    agent: str
    grpc: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    """A door of one agent. ``routing_key`` is what clients send as A2A's ``tenant`` ("" where the URL decides)."""

    binding: str
    version: str
    url: str
    routing_key: str = ""


@dataclass(frozen=True, slots=True)
class Security:
    """How to get in, for cards whose author says nothing: A2A's securitySchemes and securityRequirements."""

    schemes: Mapping[str, Any] = field(default_factory=lambda: {"bearer": _BEARER})
    requirements: Sequence[Mapping[str, Any]] = ({"schemes": {"bearer": {"list": []}}},)


BEARER_TOKENS: Final = Security()


def interfaces(site: Site, agent_id: str) -> tuple[Interface, ...]:
    """The doors of an agent, the preferred one first; those of A2A 0.3 last.

    One URL serves both versions: JSON-RPC tells them apart by method name; 0.3 clients of HTTP+JSON append ``/v1/…``.
    """
    rpc, rest = f"{site.agent}/rpc", f"{site.agent}/a2a"
    grpc = (Interface(GRPC, V1_0, site.grpc, routing_key=agent_id),) if site.grpc else ()
    return (
        Interface(JSONRPC, V1_0, rpc),
        Interface(HTTP_JSON, V1_0, rest),
        *grpc,
        Interface(JSONRPC, V0_3, rpc),
        Interface(HTTP_JSON, V0_3, rest),
    )


def served_card(
    card: Mapping[str, Any],
    doors: Sequence[Interface],
    *,
    security: Security = BEARER_TOKENS,
    extended: bool = False,
) -> dict[str, Any]:
    """The AgentCard of a registered ``card`` (in canonical ProtoJSON) behind the broker's doors.

    Streaming and push notifications, which the broker does for the agent, are on unless the author turned them off. An
    ``extended`` card that is registered is declared. The resume extension is declared; extensions without a URI are
    left out. A card that names no security schemes gets those of ``security``. Signatures are dropped: the author
    signed another card.
    """
    served = {key: value for key, value in card.items() if key != "signatures"}
    served["supportedInterfaces"] = [_interface(door) for door in doors]
    served["capabilities"] = _capabilities(card.get("capabilities") or {}, extended=extended)
    if not card.get("securitySchemes"):
        served["securitySchemes"] = dict(security.schemes)
        served["securityRequirements"] = list(security.requirements)
    return served


def etag(card_json: bytes) -> str:
    """A strong ETag, quotes included: equal bytes, equal tag, on every replica."""
    return f'"{hashlib.sha256(card_json).hexdigest()[:32]}"'


def _interface(interface: Interface) -> dict[str, str]:
    shown = {"url": interface.url, "protocolBinding": interface.binding, "protocolVersion": interface.version}
    return {**shown, "tenant": interface.routing_key} if interface.routing_key else shown


def _capabilities(registered: Mapping[str, Any], *, extended: bool) -> dict[str, Any]:
    others = [item for item in registered.get("extensions", ()) if item.get("uri") not in (None, "", RESUME_EXTENSION)]
    served = {
        **registered,
        "streaming": registered.get("streaming", True),
        "pushNotifications": registered.get("pushNotifications", True),
        "extensions": [*others, dict(_RESUME)],
    }
    return served | {"extendedAgentCard": True} if extended else served
