"""What the stream of the older ``/tasks`` dialect tells of a task's log (legacy-tasks.md): pure.

Called by ``transports.legacy`` with the events as the native API prints them, from the first one on.
"""

from app.protocol.events import EventKind
from app.protocol.fold import fold
from app.protocol.legacy import STATES, Json, legacy_artifact, parts_of, text_of, time_of
from app.protocol.states import TaskState

Told = tuple[str, Json]
"""The name and the data of one event of the dialect."""


class LegacyLog:
    """Tells one task's log. The dialect has no appending: an artifact in chunks is told when it begins, and whole when
    its last chunk has come, or else before the next change of state."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._state = STATES[TaskState.SUBMITTED]
        self._artifacts: dict[str, Json] = {}  # per artifact, a Task that has only this one
        self._created: dict[str, str] = {}
        self._untold: dict[str, None] = {}

    def tell(self, event: Json) -> list[Told]:
        """What the next event of the log is in the dialect: nothing, one event or several."""
        if update := event.get("artifactUpdate"):
            return self._grow(update, event["kind"], time_of(event))
        if update := event.get("statusUpdate"):
            return [*self._change(update["status"], time_of(event)), *self._progress(update, time_of(event))]
        if event["kind"] == EventKind.RESET:
            return self._begin(event["task"], time_of(event))
        return []

    def _grow(self, update: Json, kind: str, at: str) -> list[Told]:
        artifact_id: str = update["artifact"]["artifactId"]
        self._artifacts[artifact_id] = fold([(kind, {"artifactUpdate": update})], self._artifacts.get(artifact_id, {}))
        self._created.setdefault(artifact_id, at)
        self._untold[artifact_id] = None
        if update.get("append") and not update.get("lastChunk"):
            return []
        told = self._artifact(artifact_id, at)
        if update.get("lastChunk"):
            del self._artifacts[artifact_id]
        return [told]

    def _artifact(self, artifact_id: str, at: str) -> Told:
        del self._untold[artifact_id]
        (artifact,) = self._artifacts[artifact_id]["artifacts"]
        shown = legacy_artifact(artifact, self._created[artifact_id])
        return "artifact", {"taskId": self._task_id, "artifact": shown, "timestamp": at}

    def _change(self, status: Json, at: str) -> list[Told]:
        before, self._state = self._state, STATES[TaskState.parse(status["state"])]
        if before == self._state:
            return []
        change: Json = {"taskId": self._task_id, "from": before, "to": self._state, "timestamp": at}
        return [*(self._artifact(artifact_id, at) for artifact_id in list(self._untold)), ("state", change)]

    def _progress(self, update: Json, at: str) -> list[Told]:
        status: Json = update["status"]
        if TaskState.parse(status["state"]) is not TaskState.WORKING:
            return []
        message: Json = status.get("message", {})
        given = (metadata.get("metadata", {}).get("progress") for metadata in (update, message))
        progress = next((value for value in given if _is_number(value)), None)
        if not message and progress is None:
            return []
        said = text_of(parts_of(status))
        return [("progress", {"taskId": self._task_id, "message": said, "progress": progress, "timestamp": at})]

    def _begin(self, task: Json, at: str) -> list[Told]:
        """The log begins later than the task did: its state and artifacts up to there, all at once."""
        for artifact in task.get("artifacts", ()):
            self._artifacts[artifact["artifactId"]] = {"artifacts": [{**artifact, "parts": list(artifact["parts"])}]}
            self._created[artifact["artifactId"]] = at
            self._untold[artifact["artifactId"]] = None
        told = [self._artifact(artifact_id, at) for artifact_id in list(self._untold)]
        return [*told, *self._change(task["status"], at)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
