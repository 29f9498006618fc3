"""The older ``/tasks`` REST dialect in A2A's terms and back (legacy-tasks.md): pure, called by ``transports.legacy``.

A submission becomes a user message; a Task is shown with one word per state, artifacts that have one content each, and
the times that A2A's Task does not have (``Trail``). ``protocol.legacy_events`` has what its stream tells.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4, uuid5

from app.errors import PayloadTooLarge
from app.protocol.events import RESUME_EXTENSION
from app.protocol.models import Message, Part, Role
from app.protocol.models.base import WireModel
from app.protocol.models.scalars import Id
from app.protocol.states import TaskState
from app.protocol.strict_json import dumps

Json = dict[str, Any]

MAX_INPUT_BYTES: Final = 1024 * 1024
"""Of input and metadata together, as compact JSON."""
MAX_ANSWER_BYTES: Final = 10_000_000
"""Clients of the dialect refuse larger answers."""
ARTIFACT_TYPES: Final = frozenset({"code", "deployment", "test-result", "report", "log"})
STATES: Final = {
    TaskState.SUBMITTED: "submitted",
    TaskState.WORKING: "working",
    TaskState.INPUT_REQUIRED: "input-required",
    TaskState.AUTH_REQUIRED: "input-required",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.REJECTED: "failed",
    TaskState.CANCELED: "canceled",
}
_EXPLAINED: Final = {
    TaskState.REJECTED: "The agent rejected the task",
    TaskState.AUTH_REQUIRED: "The agent needs an authentication before it can go on",
}
"""What a state that the dialect does not have says when the agent itself says nothing."""
_KEYED: Final = UUID("5c2b1f9e-6a0d-4f0b-9c57-6a6b5a0f2d31")
_OMITTED: Final = {"omitted": "The content is too large for this API; read it through another door"}


class Submission(WireModel):
    """The body of ``POST /tasks``; ``input`` is any JSON value."""

    skill: Id
    input: object = None
    metadata: dict[str, object] | None = None


def user_message(submission: Submission, idempotency_key: str | None) -> Message:
    """The message of a submission: its input is the one part (empty text for none), its skill and metadata the
    message's metadata. An ``Idempotency-Key`` makes the messageId, so that a retry is the same message.

    Raises PayloadTooLarge.
    """
    given = submission.metadata or {}
    if len(dumps(submission.input).encode()) + len(dumps(given).encode()) > MAX_INPUT_BYTES:
        raise PayloadTooLarge(f"input and metadata together have more than {MAX_INPUT_BYTES} bytes")
    value = "" if submission.input is None else submission.input
    message = Message(
        message_id=str(uuid5(_KEYED, idempotency_key) if idempotency_key else uuid4()),
        role=Role.USER,
        parts=[Part(text=value) if isinstance(value, str) else Part(data=value)],
    )
    message.metadata = {**given, "skill": submission.skill}  # not validated: this dialect's limit is the one above
    return message


@dataclass(slots=True)
class Trail:
    """What the log tells of a task beside its fold. ``history`` is of state changes, ``{state, timestamp}`` each."""

    history: list[Json] = field(default_factory=list[Json])
    artifact_times: dict[str, str] = field(default_factory=dict[str, str])
    created_at: str = ""
    updated_at: str = ""

    def follow(self, events: Iterable[Json], last_seq: int) -> int:
        """Go on with events as the native API prints them, up to ``last_seq``; the last seq of them."""
        seq = 0
        for event in events:
            if event["seq"] > last_seq:
                break
            seq, self.updated_at = event["seq"], time_of(event)
            self.created_at = self.created_at or self.updated_at
            if update := event.get("artifactUpdate"):
                self.artifact_times.setdefault(update["artifact"]["artifactId"], self.updated_at)
            elif update := event.get("statusUpdate") or event.get("task"):
                self.reach(update["status"]["state"], self.updated_at)
        return seq

    def reach(self, state: str, at: str) -> None:
        """The task has this A2A state; nothing changes when the dialect has one word for it and the last one."""
        word = STATES[TaskState.parse(state)]
        if not self.history or self.history[-1]["state"] != word:
            self.history.append({"state": word, "timestamp": at})


def legacy_task(task: Json, trail: Trail) -> Json:
    """A2A's ``task`` as the dialect has it. Artifacts that the trail did not see bear ``updatedAt``."""
    status: Json = task["status"]
    state = TaskState.parse(status["state"])
    trail.reach(status["state"], status["timestamp"])
    updated_at = max(trail.updated_at, status["timestamp"])
    asked = next((said for said in task.get("history", ()) if said["role"] == Role.USER.wire), Json())
    sent: Json = {key: value for key, value in asked.get("metadata", {}).items() if key != RESUME_EXTENSION}
    skill, given = sent.pop("skill", ""), content(asked.get("parts", ()))
    artifacts = [
        legacy_artifact(artifact, trail.artifact_times.get(artifact["artifactId"], updated_at))
        for artifact in task.get("artifacts", ())
    ]
    shown: Json = {
        "id": task["id"],
        "skill": skill if isinstance(skill, str) else "",
        "state": STATES[state],
        "input": None if given == "" else given,
        "output": _output(status, artifacts) if state.is_terminal else None,
        "artifacts": artifacts,
        "metadata": {**sent, **task.get("metadata", {})},
        "history": trail.history,
        "createdAt": trail.created_at,
        "updatedAt": updated_at,
    }
    if said := text_of(parts_of(status)) or _EXPLAINED.get(state):
        shown["message"] = said
    return shown


def printed(shown: Json) -> str:
    """A task of ``legacy_task`` as JSON that clients accept: of what is too large for them, the largest contents of
    artifacts are left out, then the output."""
    body = dumps(shown)
    excess = len(body.encode()) - MAX_ANSWER_BYTES
    if excess <= 0:
        return body
    sized = [(len(dumps(artifact["content"]).encode()), artifact) for artifact in shown["artifacts"]]
    for size, artifact in sorted(sized, key=lambda pair: pair[0], reverse=True):
        if excess > 0:
            artifact.update(content=None, metadata={**artifact["metadata"], **_OMITTED})
            excess -= size - len(dumps(_OMITTED))
    return dumps(shown if excess <= 0 else {**shown, "output": None})


def legacy_artifact(artifact: Json, created_at: str) -> Json:
    """``{id, type, mimeType, content, metadata, createdAt}``."""
    metadata: Json = artifact.get("metadata", {})
    parts: Sequence[Json] = artifact["parts"]
    kind = metadata.get("type")
    return {
        "id": artifact["artifactId"],
        "type": kind if isinstance(kind, str) and kind in ARTIFACT_TYPES else "report",
        "mimeType": next((part["mediaType"] for part in parts if "mediaType" in part), _media_type(parts)),
        "content": content(parts),
        "metadata": metadata,
        "createdAt": created_at,
    }


def content(parts: Sequence[Json]) -> Any:
    """The texts joined, else the data (of several parts a list), else the file: its URL or its base64; "" for none."""
    if any("text" in part for part in parts):
        return text_of(parts)
    if data := [part["data"] for part in parts if "data" in part]:
        return data[0] if len(data) == 1 else data
    return next((part[kind] for part in parts for kind in ("url", "raw") if kind in part), "")


def time_of(event: Json) -> str:
    """When an event of the native API happened; a reset, which is none, is as old as the status that it shows."""
    return event.get("at") or event["task"]["status"]["timestamp"]


def text_of(parts: Iterable[Json]) -> str:
    """The texts joined; "" when there are none."""
    return "".join(part["text"] for part in parts if "text" in part)


def parts_of(status: Json) -> Sequence[Json]:
    """The parts of a status's message, perhaps none."""
    return status.get("message", {}).get("parts", ())


def _media_type(parts: Sequence[Json]) -> str:
    if any("text" in part for part in parts):
        return "text/plain"
    return "application/json" if any("data" in part for part in parts) else "application/octet-stream"


def _output(status: Json, artifacts: Sequence[Json]) -> Any:
    if parts := parts_of(status):
        return content(parts)
    return artifacts[-1]["content"] if artifacts else None


def legacy_card_fields(card: Json, agent_id: str, base_url: str) -> Json:
    """What clients of the dialect read in ``/.well-known/agent.json``, of a served ``card``.

    ``base_url`` is the agent's, without a trailing slash. These clients call the base URL that they were given;
    ``url`` only tells them. Skills and capabilities keep their other members, which A2A 0.3 clients of the same
    document need.
    """
    capabilities: Json = card.get("capabilities", {})
    skills: list[Json] = card.get("skills", [])
    return {
        "id": agent_id,
        "name": card["name"],
        "description": card["description"],
        "url": base_url,
        "version": card["version"],
        "capabilities": {
            **capabilities,
            "streaming": capabilities.get("streaming", True),
            "pushNotifications": capabilities.get("pushNotifications", False),
            "stateTransitionHistory": True,
        },
        "skills": skills,
        "authentication": {"schemes": ["bearer", "api-key"]},
        "defaultInputModes": card["defaultInputModes"],
        "defaultOutputModes": card["defaultOutputModes"],
    }
