"""From the JSON of a worker's batch to the ledger's events: validated, completed and fingerprinted.

``parse_events`` is called by ``execution.session``. What a batch means for the task is the ledger's to judge; here only
what the batch says by itself.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, cast
from uuid import UUID, uuid4, uuid5

from pydantic import Field

from app.errors import InvalidArgument, InvalidTransition, NotSupported
from app.ledger.inputs import NewEvent
from app.protocol import strict_json
from app.protocol.canonical import sha256_of
from app.protocol.events import RESUME_EXTENSION
from app.protocol.models import Message, Role, TaskArtifactUpdateEvent, TaskStatusUpdateEvent, dump, parse
from app.protocol.models.base import WireModel
from app.protocol.models.scalars import Id
from app.protocol.states import TaskState

MAX_EVENTS: Final = 1000
KINDS: Final = ("statusUpdate", "artifactUpdate", "message")
_NOT_BUILT: Final = ("requiredActions", "allowUnresolved")
_NEVER_BY_A_WORKER: Final = frozenset({TaskState.UNSPECIFIED, TaskState.SUBMITTED})

JsonObject = dict[str, Any]


class _ProducerEventId(WireModel):
    producer_event_id: Annotated[Id | None, Field(alias="producerEventId")] = None


def parse_events(value: object, *, task_id: UUID, context_id: str, attempt: int) -> list[NewEvent]:
    """The events of ``{"events": [...]}``'s list, with taskId, contextId and messageIds filled in, and with each new
    artifact marked with its attempt (ledger.md, Attempts).

    Raises InvalidArgument (with the field's path), InvalidTransition or NotSupported; then nothing may be stored.
    """
    if not isinstance(value, list) or not value:
        raise _invalid("events", "must be a list of 1 to 1000 events")
    items = cast("list[object]", value)
    if len(items) > MAX_EVENTS:
        raise _invalid("events", f"must have at most {MAX_EVENTS} events, has {len(items)}")
    reader = _EventReader(str(task_id), context_id, attempt)
    events = [reader.read(item, f"events[{index}]") for index, item in enumerate(items)]
    _check_ids(events)
    _check_course(events)
    return events


class _EventReader:
    """Reads single events for one task."""

    def __init__(self, task_id: str, context_id: str, attempt: int) -> None:
        self._task_id = task_id
        self._context_id = context_id
        self._attempt = attempt

    def read(self, value: object, at: str) -> NewEvent:
        if not isinstance(value, dict):
            raise _invalid(at, "must be an object")
        event = cast("JsonObject", value)
        for name in _NOT_BUILT:
            if event.get(name):
                raise NotSupported(f"Not supported: {name}", violations=[(f"{at}.{name}", "not supported")])
        given = [name for name in KINDS if event.get(name) is not None]
        if len(given) != 1:
            raise _invalid(at, f"must have exactly one of {', '.join(KINDS)}")
        kind = given[0]
        content = event[kind]
        if not isinstance(content, dict):
            raise _invalid(f"{at}.{kind}", "must be an object")
        producer_id = parse(_ProducerEventId, event, at=at, error=InvalidArgument).producer_event_id
        body = dict(cast("JsonObject", content))
        match kind:
            case "statusUpdate":
                return self._status(body, f"{at}.{kind}", producer_id)
            case "artifactUpdate":
                return self._artifact(body, f"{at}.{kind}", producer_id)
            case _:
                return self._message_event(body, f"{at}.{kind}", producer_id)

    def _status(self, body: JsonObject, at: str, producer_id: str | None) -> NewEvent:
        status = body.get("status")
        if isinstance(status, dict):
            # the ledger's clock is the only one, and the message gets its ids before it is judged
            status = {key: item for key, item in cast("JsonObject", status).items() if key != "timestamp"}
            if isinstance(status.get("message"), dict):
                status["message"] = self._complete_message(status["message"], producer_id)
            body["status"] = status
        self._own(body, at)
        update = parse(TaskStatusUpdateEvent, body, at=at, error=InvalidArgument)
        if update.status.state in _NEVER_BY_A_WORKER:
            raise InvalidTransition(f"A worker cannot make a task {update.status.state.wire}")
        message = update.status.message
        if message is not None:
            self._check_message(message, f"{at}.status.message")
        metadata = {key: item for key, item in (update.metadata or {}).items() if key != RESUME_EXTENSION}
        return NewEvent(
            kind="status",
            producer_event_id=producer_id,
            body_hash=sha256_of(["status", _without_broker_part(dump(update))]),
            state=update.status.state,
            message=None if message is None else strict_json.dumps(dump(message)),
            metadata=strict_json.dumps(metadata) if metadata else None,
        )

    def _artifact(self, body: JsonObject, at: str, producer_id: str | None) -> NewEvent:
        self._own(body, at)
        update = parse(TaskArtifactUpdateEvent, body, at=at, error=InvalidArgument)
        content = _without_broker_part(dump(update))
        return NewEvent(
            kind="artifact",
            producer_event_id=producer_id,
            body_hash=sha256_of(["artifact", content]),
            artifact=strict_json.dumps({**content, "artifact": self._marked(content["artifact"], update.append)}),
            artifact_id=update.artifact.artifact_id,
            append=update.append,
            last_chunk=update.last_chunk,
        )

    def _marked(self, artifact: object, append: bool) -> JsonObject:
        """Earlier attempts' artifacts stay, so each says whose it is; what is appended belongs to what is there."""
        own = _without_broker_part(cast("JsonObject", artifact))
        if append:
            return own
        metadata = cast("JsonObject", own.get("metadata", {}))
        return {**own, "metadata": {**metadata, RESUME_EXTENSION: {"attempt": self._attempt}}}

    def _message_event(self, body: JsonObject, at: str, producer_id: str | None) -> NewEvent:
        message = parse(Message, self._complete_message(body, producer_id), at=at, error=InvalidArgument)
        self._check_message(message, at)
        content = dump(message)
        return NewEvent(
            kind="message",
            producer_event_id=producer_id,
            body_hash=sha256_of(["message", content]),
            message=strict_json.dumps(content),
        )

    def _own(self, body: JsonObject, at: str) -> None:
        """Fill in taskId and contextId; an event that names another task was sent to the wrong lease."""
        for name, other, own in (("taskId", "task_id", self._task_id), ("contextId", "context_id", self._context_id)):
            given = body.pop(other, None) or body.get(name)
            if given and given != own:
                raise _invalid(f"{at}.{name}", "is not the lease's")
            body[name] = own

    def _complete_message(self, value: JsonObject, producer_id: str | None) -> JsonObject:
        """The message with a messageId: a repeated event, told by its producerEventId, gets the same one again."""
        if value.get("messageId") or value.get("message_id"):
            return value
        made = uuid4() if producer_id is None else uuid5(UUID(self._task_id), producer_id)
        return {key: item for key, item in value.items() if key != "message_id"} | {"messageId": str(made)}

    def _check_message(self, message: Message, at: str) -> None:
        if message.role is not Role.AGENT:
            raise _invalid(f"{at}.role", "must be ROLE_AGENT")
        for name, given, own in (
            ("taskId", message.task_id, self._task_id),
            ("contextId", message.context_id, self._context_id),
        ):
            if given and given != own:
                raise _invalid(f"{at}.{name}", "is not the lease's")
        message.task_id, message.context_id = self._task_id, self._context_id


def _without_broker_part(content: dict[str, object]) -> dict[str, object]:
    """What stands under the resume extension is the broker's to say, so a worker's word there is dropped."""
    metadata = content.get("metadata")
    if isinstance(metadata, dict) and RESUME_EXTENSION in metadata:
        rest = {key: item for key, item in cast("JsonObject", metadata).items() if key != RESUME_EXTENSION}
        return {**content, "metadata": rest}
    return content


def _check_ids(events: Sequence[NewEvent]) -> None:
    seen: set[str] = set()
    for index, event in enumerate(events):
        if event.producer_event_id is None:
            continue
        if event.producer_event_id in seen:
            raise _invalid(f"events[{index}].producerEventId", "is given twice in this batch")
        seen.add(event.producer_event_id)


def _check_course(events: Sequence[NewEvent]) -> None:
    """A terminal or interrupting status is the last of its batch; a direct reply is its only event."""
    for event in events[:-1]:
        if event.state is not None and event.state is not TaskState.WORKING:
            raise InvalidTransition(f"{event.state.wire} must be the last event of its batch")
    if len(events) > 1 and any(event.kind == "message" for event in events):
        raise InvalidTransition("A message must be the only event of its turn")


def _invalid(field: str, description: str) -> InvalidArgument:
    return InvalidArgument(f"{field}: {description}", violations=[(field, description)])
