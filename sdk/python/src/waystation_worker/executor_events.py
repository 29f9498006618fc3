"""What an a2a-sdk executor publishes, as the worker events of native-api.md. Pure; used by ``executor``."""

from collections.abc import Iterator
from typing import TypeAlias
from uuid import uuid4

from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as Proto

from waystation_worker.content import Json

ExecutorEvent: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

ENDING = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
        TaskState.TASK_STATE_INPUT_REQUIRED,
        TaskState.TASK_STATE_AUTH_REQUIRED,
    }
)
"""States that end a turn: the terminal and the interrupted ones."""


def worker_events(event: ExecutorEvent, known: Task) -> Iterator[tuple[Json, bool]]:
    """The worker events of one executor event, each with whether it ends the turn. ``known``: the broker's task.

    Ids and times are left to the broker. A SUBMITTED status says nothing new, since the task exists, and is left out;
    so are a Task's artifacts and status message that the broker has already, its history and its metadata.
    Raises ValueError for an event of another task or context, as the SDK's own server does.
    """
    if isinstance(event, Message):
        yield {"message": _message(event)}, True
        return
    _require_same(event, known)
    if isinstance(event, TaskArtifactUpdateEvent):
        yield {"artifactUpdate": _without_ids(event)}, False
    elif isinstance(event, TaskStatusUpdateEvent):
        yield from _status(event.status, _json(event).get("metadata"))
    else:
        yield from _task(event, known)


def _task(event: Task, known: Task) -> Iterator[tuple[Json, bool]]:
    stored: dict[str, Artifact] = {artifact.artifact_id: artifact for artifact in known.artifacts}
    for artifact in event.artifacts:
        same = stored.get(artifact.artifact_id)
        if same is None or list(same.parts) != list(artifact.parts):
            yield {"artifactUpdate": {"artifact": _json(artifact), "append": False, "lastChunk": True}}, False
    told = {message.message_id for message in (*known.history, known.status.message)}
    news = event.status.HasField("message") and event.status.message.message_id not in told
    if news or event.status.state in ENDING:
        yield from _status(event.status, None)


def _status(status: TaskStatus, metadata: Json | None) -> Iterator[tuple[Json, bool]]:
    if status.state in {TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_UNSPECIFIED}:
        return
    body: Json = {"state": TaskState.Name(status.state)}
    if status.HasField("message"):
        body["message"] = _message(status.message)
    update: Json = {"status": body}
    if metadata:
        update["metadata"] = metadata
    yield {"statusUpdate": update}, status.state in ENDING


def _message(message: Message) -> Json:
    return {"messageId": str(uuid4()), "role": "ROLE_AGENT", **_without_ids(message)}


def _without_ids(proto: Proto) -> Json:
    body = _json(proto)
    body.pop("taskId", None)
    body.pop("contextId", None)
    return body


def _json(proto: Proto) -> Json:
    return MessageToDict(proto)


def _require_same(event: Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent, known: Task) -> None:
    task_id = event.id if isinstance(event, Task) else event.task_id
    if task_id not in {"", known.id} or event.context_id not in {"", known.context_id}:
        raise ValueError(f"an event of task {task_id} in context {event.context_id}, published for task {known.id}")
