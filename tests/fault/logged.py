"""One event of a log, as far as the checker needs to know it (native-api.md, Readers). Called by check.py."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.fault.history import Frame

RESUME_EXTENSION = "https://waystation.dev/ext/resume/v1"
HIDDEN = frozenset({"message.user", "turn.started", "action.answered", "effect.changed"})
"""Kinds that A2A doors and webhooks do not show (native-api.md)."""
TERMINAL = frozenset({"COMPLETED", "FAILED", "CANCELED", "REJECTED"})


@dataclass(frozen=True, slots=True)
class Logged:
    """``at``: seconds; ``message_id``: of the client's message that this event stores; ``mark``: what a worker of a
    fault test has put into its event; ``reason``: why the broker took a lease away; each "" when there is none."""

    seq: int
    kind: str
    at: float
    turn: int
    state: str
    message_id: str
    mark: str
    reason: str
    is_claim: bool


def parse(frame: Frame) -> Logged:
    event: dict[str, Any] = json.loads(frame.data)
    update: dict[str, Any] = event.get("statusUpdate", {})
    status: dict[str, Any] = update.get("status", {})
    broker: dict[str, Any] = update.get("metadata", {}).get(RESUME_EXTENSION, {})
    sent = [event["message"]] if "message" in event else event.get("task", {}).get("history", [])
    return Logged(
        seq=frame.seq,
        kind=event["kind"],
        at=datetime.fromisoformat(event["at"]).timestamp(),
        turn=event["turn"],
        state=status.get("state", "").removeprefix("TASK_STATE_"),
        message_id=sent[0]["messageId"] if sent else "",
        mark=_mark(event, status),
        reason=broker.get("reason", ""),
        is_claim="attempt" in broker and "reason" not in broker,
    )


def _mark(event: dict[str, Any], status: dict[str, Any]) -> str:
    """An artifact's mark is the metadata of its one part, a status's is its message's id."""
    if "artifactUpdate" in event:
        return event["artifactUpdate"]["artifact"]["parts"][0].get("metadata", {}).get("mark", "")
    return status.get("message", {}).get("messageId", "") if event["actor"]["kind"] == "worker" else ""
