"""What handlers say, as A2A parts and messages (A2A v1.0 §4.1). Used by the context, the artifact writer, the turn."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast
from uuid import uuid4

Json: TypeAlias = dict[str, Any]
Content: TypeAlias = str | bytes | Mapping[str, Any] | Sequence[Any]
"""Text, bytes, JSON data, or a list of these. A mapping with a part's own key (see PART_KEYS) is that part."""

PART_KEYS = frozenset({"text", "raw", "url", "data", "metadata", "filename", "mediaType"})


def part_of(content: Any) -> Json:
    """One A2A part: text of a str, raw (base64) of bytes, data of anything else that is JSON; a part stays itself."""
    if isinstance(content, str):
        return {"text": content}
    if isinstance(content, bytes):
        return {"raw": base64.b64encode(content).decode("ascii")}
    if isinstance(content, Mapping):
        given = dict(cast("Mapping[str, Any]", content))
        return given if _is_part(given) else {"data": given}
    return {"data": content}


def parts_of(content: Content) -> list[Json]:
    """The parts of a content: one for each item of a list, else one."""
    if isinstance(content, list | tuple):
        return [part_of(item) for item in cast("Sequence[Any]", content)]
    return [part_of(content)]


def message_of(content: Content) -> Json:
    """An agent's message with ``content`` as its parts. A mapping with role and parts is a message already.

    The messageId is made here, once, so that a resent message is the same message.
    """
    if isinstance(content, Mapping) and {"role", "parts"} <= content.keys():
        given = dict(content)
        return {"messageId": str(uuid4()), **given}
    return {"messageId": str(uuid4()), "role": "ROLE_AGENT", "parts": parts_of(content)}


def status_event(state: str, content: Content | None = None, metadata: Json | None = None) -> Json:
    """A statusUpdate. ``state`` without its prefix: ``"COMPLETED"``; the broker fills in ids and the time."""
    status: Json = {"state": f"TASK_STATE_{state}"}
    if content is not None:
        status["message"] = message_of(content)
    update: Json = {"status": status}
    if metadata:
        update["metadata"] = metadata
    return {"statusUpdate": update}


def text_of(message: Json) -> str:
    """The text parts of a message, joined by line ends; "" when there are none."""
    return "\n".join(part["text"] for part in message.get("parts", []) if "text" in part)


def encode(value: Any) -> bytes:
    """JSON as UTF-8. Raises TypeError or ValueError for what JSON cannot carry (NaN and lone surrogates included)."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _is_part(given: Json) -> bool:
    """Exactly one of a part's four contents, and nothing that is not a part's."""
    return given.keys() <= PART_KEYS and len(given.keys() & {"text", "raw", "url", "data"}) == 1
