"""Tasks and what happens to them: Message, Artifact, Task, the two update events, and the StreamResponse around them.

Field order, names and requiredness are those of ``a2a.proto`` (tests/contract/test_protobuf_oracle.py compares them).
"""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator
from pydantic.config import JsonDict

from app.protocol.models.base import ABSENT, OneofModel, WireModel
from app.protocol.models.scalars import (
    MAX_PARTS,
    NULL_IS_EMPTY_LIST,
    Base64,
    Flag,
    Id,
    Ids,
    OptionalId,
    RequiredRole,
    RequiredState,
    Struct,
    Text,
    Texts,
    Timestamp,
)


def _without_default(schema: JsonDict) -> None:
    schema.pop("default", None)


class Part(WireModel):
    """Exactly one of ``text``, ``raw`` (canonical base64), ``url`` and ``data`` (any JSON value, or ABSENT)."""

    text: str | None = None
    raw: Base64 | None = None
    url: str | None = None
    data: object = Field(default=ABSENT, json_schema_extra=_without_default)
    metadata: Struct | None = None
    filename: Text = ""
    media_type: Text = ""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        others = (self.text is not None) + (self.raw is not None) + (self.url is not None)
        # A null beside other content is an absent field spelt out; alone it is the value null.
        if others and self.data is None:
            self.data = ABSENT
        if others + (self.data is not ABSENT) != 1:
            raise ValueError("must have exactly one of text, raw, url, data")
        return self


Parts = Annotated[list[Part], Field(min_length=1, max_length=MAX_PARTS)]


class Message(WireModel):
    message_id: Id
    context_id: OptionalId = ""
    task_id: OptionalId = ""
    role: RequiredRole
    parts: Parts
    metadata: Struct | None = None
    extensions: Texts = Field(default_factory=list[str])  # a default list would be copied deeply each time
    reference_task_ids: Ids = Field(default_factory=list[str])


class Artifact(WireModel):
    artifact_id: Id
    name: Text = ""
    description: Text = ""
    parts: Parts
    metadata: Struct | None = None
    extensions: Texts = []


class TaskStatus(WireModel):
    state: RequiredState
    message: Message | None = None
    timestamp: Timestamp | None = None


class Task(WireModel):
    id: Id
    context_id: OptionalId = ""
    status: TaskStatus
    artifacts: Annotated[list[Artifact], NULL_IS_EMPTY_LIST] = []
    history: Annotated[list[Message], NULL_IS_EMPTY_LIST] = []
    metadata: Struct | None = None


class TaskStatusUpdateEvent(WireModel):
    task_id: Id
    context_id: Id
    status: TaskStatus
    metadata: Struct | None = None


class TaskArtifactUpdateEvent(WireModel):
    task_id: Id
    context_id: Id
    artifact: Artifact
    append: Flag = False
    last_chunk: Flag = False
    metadata: Struct | None = None


class StreamResponse(OneofModel):
    ONEOF: ClassVar[tuple[str, ...]] = ("task", "message", "status_update", "artifact_update")

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None


class SendMessageResponse(OneofModel):
    ONEOF: ClassVar[tuple[str, ...]] = ("task", "message")

    task: Task | None = None
    message: Message | None = None
