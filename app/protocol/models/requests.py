"""The request of each operation (A2A v1.0 §5.3), and the answers that are not a Task or a stream.

``tenant`` is A2A's routing key, not the tenant of a token: the URL decides, and a door checks or ignores it.
"""

from typing import Annotated

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from app.protocol.models.base import WireModel
from app.protocol.models.messages import Message, Task
from app.protocol.models.scalars import (
    NULL_IS_EMPTY_LIST,
    Flag,
    HistoryLength,
    Id,
    Int32,
    OptionalFlag,
    OptionalId,
    OptionalState,
    PageSize,
    RequiredText,
    Struct,
    Text,
    Texts,
    Timestamp,
)
from app.protocol.states import TaskState


class AuthenticationInfo(WireModel):
    scheme: RequiredText
    credentials: Text = ""


class TaskPushNotificationConfig(WireModel):
    """A webhook of a task: the request and the answer of CreateTaskPushNotificationConfig."""

    tenant: OptionalId = ""
    id: OptionalId = ""
    task_id: OptionalId = ""
    url: RequiredText
    token: Text = ""
    authentication: AuthenticationInfo | None = None


class SendMessageConfiguration(WireModel):
    accepted_output_modes: Texts = Field(default_factory=list[str])
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: HistoryLength = None
    return_immediately: Flag = False


class SendMessageRequest(WireModel):
    """Of SendMessage and SendStreamingMessage."""

    tenant: OptionalId = ""
    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: Struct | None = None


class GetTaskRequest(WireModel):
    tenant: OptionalId = ""
    id: Id
    history_length: HistoryLength = None


class ListTasksRequest(WireModel):
    """``status`` UNSPECIFIED means any, ``page_size`` None the default (50); the timestamp is inclusive."""

    tenant: OptionalId = ""
    context_id: OptionalId = ""
    status: OptionalState = TaskState.UNSPECIFIED
    page_size: PageSize = None
    page_token: Text = ""
    history_length: HistoryLength = None
    status_timestamp_after: Timestamp | None = None
    include_artifacts: OptionalFlag = None


class ListTasksResponse(WireModel):
    """All four keys are always printed: they are REQUIRED, and canonical ProtoJSON would drop empty ones."""

    tasks: Annotated[list[Task], NULL_IS_EMPTY_LIST] = []
    next_page_token: Text = ""
    page_size: Int32 = 0
    total_size: Int32 = 0

    @model_serializer(mode="wrap")
    def _with_forced_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        forced: dict[str, object] = {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}
        return {**forced, **serialize(self)}


class CancelTaskRequest(WireModel):
    tenant: OptionalId = ""
    id: Id
    metadata: Struct | None = None


class SubscribeToTaskRequest(WireModel):
    tenant: OptionalId = ""
    id: Id


class GetTaskPushNotificationConfigRequest(WireModel):
    tenant: OptionalId = ""
    task_id: Id
    id: Id


class DeleteTaskPushNotificationConfigRequest(WireModel):
    tenant: OptionalId = ""
    task_id: Id
    id: Id


class ListTaskPushNotificationConfigsRequest(WireModel):
    """``page_size`` 0 means the default."""

    tenant: OptionalId = ""
    task_id: Id
    page_size: Int32 = 0
    page_token: Text = ""


class ListTaskPushNotificationConfigsResponse(WireModel):
    configs: Annotated[list[TaskPushNotificationConfig], NULL_IS_EMPTY_LIST] = []
    next_page_token: Text = ""


class GetExtendedAgentCardRequest(WireModel):
    tenant: OptionalId = ""
