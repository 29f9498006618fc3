"""One line of text for an event, a message, a part. Shared by ``tasks``, ``send`` and the demo."""

import json

from app.cli.follow import state_of
from app.cli.frames import Frame
from app.cli.output import JsonObject, printable, shorten
from app.protocol.events import RESUME_EXTENSION
from app.protocol.states import TaskState


def short_state(wire: object) -> str:
    """``COMPLETED`` of ``TASK_STATE_COMPLETED``."""
    return printable(wire).removeprefix("TASK_STATE_")


def parse_state(text: str) -> str:
    """The wire name of what a person types: ``completed``, ``input-required``, or the name itself. ValueError else."""
    name = text.strip().upper().replace("-", "_").removeprefix("TASK_STATE_")
    try:
        return TaskState[name].wire
    except KeyError:
        raise ValueError(f"not a task state: {text}") from None


def part_text(part: JsonObject) -> str:
    """What a part says; as it came, so not yet safe to print."""
    if "text" in part:
        return str(part["text"])
    if "data" in part:
        return json.dumps(part["data"], ensure_ascii=False)
    return str(part.get("url") or f"[{part.get('mediaType') or 'file'}]")


def parts_text(holder: JsonObject | None) -> str:
    """What the parts of a message or an artifact say, one after the other; not yet safe to print."""
    return "".join(part_text(part) for part in (holder or {}).get("parts", []))


def event_summary(frame: Frame) -> str:
    """What an event says, short enough for one line."""
    data = frame.data
    words: list[str] = []
    if state := state_of(frame):
        words.append(state.name)
    if artifact := data.get("artifactUpdate"):
        words.append(_artifact_words(artifact))
    if frame.kind in ("turn.started", "turn.ended"):
        words.append(f"turn {data.get('turn')}")
    if data.get("attempt") and frame.kind == "status":
        words.append(f"attempt {data['attempt']}")
    if reason := _reason(data):
        words.append(reason)
    if frame.kind == "reset":
        words.append(f"{data.get('reason')}: events {data.get('lostFrom')}..{data.get('lostTo')} are not kept")
    words.extend(_said(data))
    return shorten("  ".join(printable(word) for word in words if word))


def _reason(data: JsonObject) -> str | None:
    """Why the broker itself changed the state, in its metadata: LEASE_EXPIRED, RETRY, CANCEL_GRACE_ENDED …"""
    update: JsonObject = data.get("statusUpdate") or {}
    return update.get("metadata", {}).get(RESUME_EXTENSION, {}).get("reason")


def _artifact_words(update: JsonObject) -> str:
    artifact: JsonObject = update.get("artifact", {})
    name = artifact.get("name") or artifact.get("artifactId", "")
    sign = "+=" if update.get("append") else "="
    return f"{name} {sign} {json.dumps(parts_text(artifact), ensure_ascii=False)}" + (
        "  (last chunk)" if update.get("lastChunk") else ""
    )


def _said(data: JsonObject) -> list[str]:
    update: JsonObject = data.get("statusUpdate") or {"status": {}}
    message: JsonObject | None = data.get("message") or update["status"].get("message")
    if message is None and (task := data.get("task")):
        history: list[JsonObject] = task.get("history", [])
        message = history[0] if history else None
    text = parts_text(message)
    return [json.dumps(text, ensure_ascii=False)] if text else []
