"""A2A v1.0's wire types as pydantic models, and ``parse`` / ``dump`` between them and plain JSON values."""

from app.protocol.models.base import ABSENT, Role
from app.protocol.models.card import AgentCard, RegisteredCard
from app.protocol.models.messages import (
    Artifact,
    Message,
    Part,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from app.protocol.models.requests import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from app.protocol.models.scalars import format_timestamp, parse_timestamp
from app.protocol.models.validation import dump, parse, parse_query

__all__ = [
    "ABSENT",
    "AgentCard",
    "Artifact",
    "CancelTaskRequest",
    "DeleteTaskPushNotificationConfigRequest",
    "GetExtendedAgentCardRequest",
    "GetTaskPushNotificationConfigRequest",
    "GetTaskRequest",
    "ListTaskPushNotificationConfigsRequest",
    "ListTaskPushNotificationConfigsResponse",
    "ListTasksRequest",
    "ListTasksResponse",
    "Message",
    "Part",
    "RegisteredCard",
    "Role",
    "SendMessageConfiguration",
    "SendMessageRequest",
    "SendMessageResponse",
    "StreamResponse",
    "SubscribeToTaskRequest",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskPushNotificationConfig",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "dump",
    "format_timestamp",
    "parse",
    "parse_query",
    "parse_timestamp",
]
