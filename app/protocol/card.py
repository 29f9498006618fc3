"""Agent cards: what the broker serves is made of the card that an author registered (``models.card.RegisteredCard``).

``served_card`` is called by the card doors.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.protocol.events import RESUME_EXTENSION
from app.protocol.version import V1_0

_RESUME: Final = {
    "uri": RESUME_EXTENSION,
    "description": "Streams can be resumed by event sequence number; what the broker adds stands under this URI",
    "required": False,
}
_BEARER: Final = "bearer"


@dataclass(frozen=True, slots=True)
class Interface:
    """A door of one agent. ``routing_key`` is what clients send as A2A's ``tenant`` ("" where the URL decides)."""

    binding: str
    version: str
    url: str
    routing_key: str = ""


def http_interfaces(base_url: str) -> tuple[Interface, ...]:
    """The HTTP doors below an agent's base URL (no slash at its end), the preferred one first."""
    return (Interface("JSONRPC", V1_0, f"{base_url}/rpc"), Interface("HTTP+JSON", V1_0, f"{base_url}/a2a"))


def served_card(card: Mapping[str, Any], interfaces: Sequence[Interface], *, push: bool = False) -> dict[str, Any]:
    """The AgentCard of a registered ``card`` (in canonical ProtoJSON) behind the broker's doors.

    Streaming is on unless the author turned it off; push notifications are on if the broker offers them (``push``)
    and the author did not turn them off. The resume extension is declared. A card that names no security schemes gets
    bearer tokens, which the broker wants. Signatures are dropped: the author signed another card.
    """
    served = {key: value for key, value in card.items() if key != "signatures"}
    served["supportedInterfaces"] = [_interface(interface) for interface in interfaces]
    served["capabilities"] = _capabilities(card.get("capabilities") or {}, push=push)
    if not card.get("securitySchemes"):
        served["securitySchemes"] = {_BEARER: {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}}}
        served["securityRequirements"] = [{"schemes": {_BEARER: {"list": []}}}]
    return served


def etag(card_json: bytes) -> str:
    """A strong ETag, quotes included: equal bytes, equal tag, on every replica."""
    return f'"{hashlib.sha256(card_json).hexdigest()[:32]}"'


def _interface(interface: Interface) -> dict[str, str]:
    shown = {"url": interface.url, "protocolBinding": interface.binding, "protocolVersion": interface.version}
    return {**shown, "tenant": interface.routing_key} if interface.routing_key else shown


def _capabilities(registered: Mapping[str, Any], *, push: bool) -> dict[str, Any]:
    others = [extension for extension in registered.get("extensions", ()) if extension.get("uri") != RESUME_EXTENSION]
    return {
        **registered,
        "streaming": registered.get("streaming", True),
        "pushNotifications": push and registered.get("pushNotifications", True),
        "extensions": [*others, dict(_RESUME)],
    }
