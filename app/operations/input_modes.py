"""The content types of a message's parts against what its agent takes (A2A v1.0 §3.3.4, §5.4). Called by ``accept``.

``acceptedOutputModes`` are the other way round and are never a reason to refuse: they are what a client would like
(§3.2.2, SHOULD), the worker receives them with nothing else known of what it will answer, and a refusal before any work
was done would be a guess.
"""

from collections.abc import Iterator

from app.errors import ContentTypeNotSupported
from app.ledger.rows import Agent, JsonObject
from app.protocol.models import Message

_SHOWN_CHARACTERS = 64


def require_input_modes(agent: Agent, message: Message) -> None:
    """Raise ContentTypeNotSupported for a part whose mediaType the agent does not take.

    It takes its card's defaultInputModes and the inputModes of any skill; ``*/*`` and ``text/*`` stand for many. Case
    and parameters make no difference. A part that names no type is taken, and by a card that names none each is.
    """
    typed = [(place, part.media_type) for place, part in enumerate(message.parts) if part.media_type]
    if not typed:
        return
    modes = {_essence(mode) for mode in _modes(agent.config["card"])}
    for place, media_type in typed:
        essence = _essence(media_type)
        if modes and modes.isdisjoint((essence, essence.partition("/")[0] + "/*", "*/*")):
            path = f"message.parts[{place}].mediaType"
            text = f"{path}: this agent does not take {essence[:_SHOWN_CHARACTERS]!r}"
            raise ContentTypeNotSupported(text, metadata={"field": path})


def _modes(card: JsonObject) -> Iterator[str]:
    yield from card["defaultInputModes"]
    for skill in card["skills"]:
        yield from skill.get("inputModes", ())


def _essence(media_type: str) -> str:
    """Type and subtype. Cards from before 1.0 say ``text`` for ``text/*``."""
    essence = media_type.partition(";")[0].strip().lower()
    return essence if "/" in essence else f"{essence}/*"
