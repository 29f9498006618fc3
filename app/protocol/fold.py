"""A Task is the fold of its events: GetTask = fold(all events), a snapshot = fold(events up to a seq).

Called by the operations (GetTask, ListTasks, the first frame of a stream), by leasing and by the snapshot cache. Tasks
and bodies are plain JSON objects as they are stored. Bodies are never changed; a task passed in may be.
"""

from collections.abc import Iterable
from typing import Any, Final

from app.protocol.events import EventKind
from app.protocol.models.base import Role

Json = dict[str, Any]
"""A JSON object as stored: camelCase, full enum names, no defaults."""

_STATUS_KINDS: Final = frozenset(
    {EventKind.STATUS, EventKind.ACTION_REQUIRED, EventKind.TURN_ENDED, EventKind.CANCEL_REQUESTED}
)
_ARTIFACT_KINDS: Final = frozenset({EventKind.ARTIFACT_DELTA, EventKind.ARTIFACT_REPLACE, EventKind.ARTIFACT_MERGED})
_AGENT: Final = Role.AGENT.wire
_GIVEN_ON_APPEND: Final = ("name", "description", "extensions")


def fold(events: Iterable[tuple[str, Json]], task: Json | None = None) -> Json:
    """The Task after ``events``, (kind, body) pairs in seq order, from ``task`` (a snapshot) or from the beginning.

    Guarantees that fold(b, fold(a)) == fold(a + b), and that history and status together have each message once
    (resume-contract.md, History): an agent's by its messageId, a client's by its event, for duplicates are not stored
    and an id may be another client's too. Kinds without a meaning for the Task are passed over. Raises ValueError if
    there is no task and the first event is not ``task.submitted``.
    """
    folding = _Folding(task) if task is not None else None
    for kind, body in events:
        if kind == EventKind.TASK_SUBMITTED:
            folding = _Folding(_own(body["task"]))
        elif folding is None:
            raise ValueError(f"the first event of a task is task.submitted, not {kind}")
        elif kind in _STATUS_KINDS:
            folding.status(body["statusUpdate"])
        elif kind in _ARTIFACT_KINDS:
            folding.artifact(body["artifactUpdate"])
        elif kind == EventKind.MESSAGE_USER:
            folding.message(body["message"])
    if folding is None:
        raise ValueError("a task has at least one event")
    return folding.task


def view(
    task: Json, *, history_length: int | None = None, include_artifacts: bool = True, empty_artifacts: bool = False
) -> Json:
    """What an operation shows of a folded Task, as a new object that shares its members with ``task``.

    ``history_length``: None all, 0 no ``history`` key, n at most the n most recent (A2A v1.0 §3.2.4). Without
    ``include_artifacts`` there is no ``artifacts`` key; ``empty_artifacts`` shows ``[]`` when there are none, which is
    how ListTasks answers includeArtifacts (§3.1.4).
    """
    shown = {key: value for key, value in task.items() if key not in ("history", "artifacts")}
    if include_artifacts and (task.get("artifacts") or empty_artifacts):
        shown["artifacts"] = task.get("artifacts", [])
    history = task.get("history", [])
    if history_length is not None:
        history = history[max(0, len(history) - history_length) :]
    if history:
        shown["history"] = history
    return shown


def _own(task: Json) -> Json:
    """A copy of everything the fold changes in place, so that the event's body stays as it is."""
    own = dict(task)
    if "history" in own:
        own["history"] = list(own["history"])
    if "artifacts" in own:
        own["artifacts"] = [{**artifact, "parts": list(artifact["parts"])} for artifact in own["artifacts"]]
    return own


class _Folding:
    """A task with the indexes that make each step independent of its length."""

    def __init__(self, task: Json) -> None:
        self.task = task
        self._said: set[str] = {message["messageId"] for message in task.get("history", ()) if _is_agents(message)}
        self._positions: dict[str, int] = {
            artifact["artifactId"]: position for position, artifact in enumerate(task.get("artifacts", ()))
        }

    def message(self, message: Json) -> None:
        """A client's message: what the agent said before it comes first."""
        current: Json = self.task["status"]
        if said := current.get("message"):
            self.task["status"] = {key: value for key, value in current.items() if key != "message"}
            self._remember(said)
        self.task.setdefault("history", []).append(message)

    def status(self, update: Json) -> None:
        status: Json = update["status"]
        if said := self.task["status"].get("message"):
            self._remember(said)
        if (saying := status.get("message")) and saying["messageId"] in self._said:
            self._forget(saying["messageId"])
        self.task["status"] = status
        if metadata := update.get("metadata"):
            self.task["metadata"] = {**self.task.get("metadata", {}), **metadata}

    def artifact(self, update: Json) -> None:
        artifact: Json = update["artifact"]
        artifacts: list[Json] = self.task.setdefault("artifacts", [])
        position = self._positions.get(artifact["artifactId"])
        if position is None:
            self._positions[artifact["artifactId"]] = len(artifacts)
            artifacts.append({**artifact, "parts": list(artifact["parts"])})
        elif not update.get("append"):
            artifacts[position] = {**artifact, "parts": list(artifact["parts"])}
        else:
            _extend(artifacts[position], artifact)

    def _remember(self, message: Json) -> None:
        if message["messageId"] not in self._said:
            self._said.add(message["messageId"])
            self.task.setdefault("history", []).append(message)

    def _forget(self, message_id: str) -> None:
        """A message said again becomes the current one, and the current one stands in status only."""
        self._said.discard(message_id)
        history: list[Json] = self.task["history"]
        # From the end: what is said again was mostly said just before.
        del history[next(at for at in reversed(range(len(history))) if _is(history[at], message_id))]


def _is_agents(message: Json) -> bool:
    return message["role"] == _AGENT


def _is(message: Json, agents_id: str) -> bool:
    return message["messageId"] == agents_id and _is_agents(message)


def _extend(whole: Json, delta: Json) -> None:
    """append=true: parts are added, metadata is merged, and what else the delta gives replaces what was there."""
    whole["parts"].extend(delta["parts"])
    whole.update((key, delta[key]) for key in _GIVEN_ON_APPEND if key in delta)
    if "metadata" in delta:
        whole["metadata"] = {**whole.get("metadata", {}), **delta["metadata"]}
