"""What a signature of an agent card covers (A2A v1.0 §8.4.1): its bytes, called by ``operations.served_cards``."""

from collections.abc import Mapping
from typing import Any, cast

from app.protocol.canonical import canonical
from app.protocol.models import AgentCard, dump, parse


def signed_payloads(card: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The canonical forms of a served ``card`` (1.0) without its signatures: one, or two that differ.

    The official SDKs leave out every empty value at any depth; §8.4.1 keeps REQUIRED fields that are empty, and what
    has presence. Their first form is the SDKs'. A card that carries a signature over each is valid for both kinds of
    verifiers, for one valid signature is enough (§8.4.3; docs/decisions/card-signatures.md).
    """
    plain = dump(parse(AgentCard, {key: value for key, value in card.items() if key != "signatures"}))
    return tuple(dict.fromkeys((canonical(_without_empty(plain) or {}), canonical(plain))))


def _without_empty(value: object) -> object:
    """``value`` without empty strings, lists, objects and nulls, and without what becomes empty so; None if nothing is
    left."""
    if isinstance(value, dict):
        items = ((key, _without_empty(item)) for key, item in cast("dict[str, object]", value).items())
        return {key: item for key, item in items if item is not None} or None
    if isinstance(value, list):
        return [kept for item in cast("list[object]", value) if (kept := _without_empty(item)) is not None] or None
    return None if value == "" else value
