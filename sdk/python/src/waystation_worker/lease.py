"""The broker's answers as values (native-api.md, Workers). Made by the broker client, read everywhere."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from waystation_worker.content import Json

Signal: TypeAlias = Literal["cancel", "interrupt", "deadline"]
"""What the broker asks of a lease: end the task, end this turn only, or stop because the deadline has passed."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one turn of a task. ``seconds`` is how long it lasts without a heartbeat, None if untold."""

    id: str
    task_id: str
    context_id: str
    tenant: str
    fence: int
    attempt: int
    turn: int
    seconds: float | None
    task: Json
    message: Json
    prior_messages: tuple[Json, ...]
    answers: tuple[Json, ...]
    traceparent: str | None

    @classmethod
    def parse(cls, data: Json) -> "Lease":
        return cls(
            id=data["leaseId"],
            task_id=data["taskId"],
            context_id=data["contextId"],
            tenant=data["tenant"],
            fence=data["fence"],
            attempt=data["attempt"],
            turn=data["turn"],
            seconds=_seconds(data),
            task=data["task"],
            message=data["message"],
            prior_messages=tuple(data.get("priorMessages") or ()),
            answers=tuple(data.get("answers") or ()),
            traceparent=data.get("traceparent"),
        )


def _seconds(lease: Json) -> float | None:
    """From the claim (the task's WORKING status) to the end; both are the database's times, so no clock matters."""
    try:
        claimed = datetime.fromisoformat(lease["task"]["status"]["timestamp"])
        return (datetime.fromisoformat(lease["expiresAt"]) - claimed).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The broker has these events, and everything before them, in its ledger."""

    state: str
    last_seq: int
    turn_ended: bool
    lease_ended: bool
    signal: Signal | None

    @classmethod
    def parse(cls, data: Json) -> "Receipt":
        return cls(data["state"], data["lastSeq"], data["turnEnded"], data["leaseEnded"], data.get("signal"))


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat learnt of one lease: it goes on (with a signal, maybe), or it is lost."""

    lease_id: str
    alive: bool
    signal: Signal | None = None
    reason: str = "LEASE_LOST"
    state: str | None = None

    @classmethod
    def parse(cls, data: dict[str, Any]) -> "Beat":
        if data["ok"]:
            return cls(data["leaseId"], alive=True, signal=data.get("signal"))
        return cls(data["leaseId"], alive=False, reason=data.get("reason") or "LEASE_LOST", state=data.get("state"))
