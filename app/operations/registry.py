"""The table of A2A operations (A2A v1.0 §5.3): one row each, from which every door is made.

A door parses the request, checks the scope, and calls the row's function; it knows nothing else of an operation.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from app.auth.caller import CallContext
from app.operations.agent_card import get_extended_agent_card
from app.operations.agent_doors import AgentDoor
from app.operations.answers import Answer
from app.operations.cancel_task import cancel_task
from app.operations.deps import Operations
from app.operations.get_task import get_task
from app.operations.list_tasks import list_tasks
from app.operations.push_configs import (
    create_push_config,
    delete_push_config,
    get_push_config,
    list_push_configs,
)
from app.operations.send_message import send_message
from app.operations.subscribe import TaskStream, send_streaming_message, subscribe_to_task
from app.protocol import models
from app.protocol.models.base import WireModel

Function = Callable[[Operations, CallContext, AgentDoor, Any], Awaitable[Answer | TaskStream]]


@dataclass(frozen=True, slots=True)
class Route:
    """``path`` is relative to the HTTP+JSON interface's URL; its parameters are fields of the request."""

    verb: str
    path: str


@dataclass(frozen=True, slots=True)
class Operation:
    """``name`` is the JSON-RPC method and the gRPC rpc name; ``response`` is the answer, or one item of a stream."""

    name: str
    request: type[WireModel]
    response: type[WireModel] | None
    scope: str
    function: Function
    routes: tuple[Route, ...]
    streaming: bool = False


_CONFIGS: Final = "/tasks/{task_id}/pushNotificationConfigs"

OPERATIONS: Final = (
    Operation(
        "SendMessage",
        models.SendMessageRequest,
        models.SendMessageResponse,
        "tasks:write",
        send_message,
        (Route("POST", "/message:send"),),
    ),
    Operation(
        "SendStreamingMessage",
        models.SendMessageRequest,
        models.StreamResponse,
        "tasks:write",
        send_streaming_message,
        (Route("POST", "/message:stream"),),
        streaming=True,
    ),
    Operation("GetTask", models.GetTaskRequest, models.Task, "tasks:read", get_task, (Route("GET", "/tasks/{id}"),)),
    Operation(
        "ListTasks",
        models.ListTasksRequest,
        models.ListTasksResponse,
        "tasks:read",
        list_tasks,
        (Route("GET", "/tasks"),),
    ),
    Operation(
        "CancelTask",
        models.CancelTaskRequest,
        models.Task,
        "tasks:cancel",
        cancel_task,
        (Route("POST", "/tasks/{id}:cancel"),),
    ),
    Operation(
        "SubscribeToTask",
        models.SubscribeToTaskRequest,
        models.StreamResponse,
        "tasks:read",
        subscribe_to_task,
        # a2a.proto says GET, §5.3 and §11.3.2 say POST
        (Route("GET", "/tasks/{id}:subscribe"), Route("POST", "/tasks/{id}:subscribe")),
        streaming=True,
    ),
    Operation(
        "CreateTaskPushNotificationConfig",
        models.TaskPushNotificationConfig,
        models.TaskPushNotificationConfig,
        "push:write",
        create_push_config,
        (Route("POST", _CONFIGS),),
    ),
    Operation(
        "GetTaskPushNotificationConfig",
        models.GetTaskPushNotificationConfigRequest,
        models.TaskPushNotificationConfig,
        "tasks:read",
        get_push_config,
        (Route("GET", _CONFIGS + "/{id}"),),
    ),
    Operation(
        "ListTaskPushNotificationConfigs",
        models.ListTaskPushNotificationConfigsRequest,
        models.ListTaskPushNotificationConfigsResponse,
        "tasks:read",
        list_push_configs,
        (Route("GET", _CONFIGS),),
    ),
    Operation(
        "DeleteTaskPushNotificationConfig",
        models.DeleteTaskPushNotificationConfigRequest,
        None,
        "push:write",
        delete_push_config,
        (Route("DELETE", _CONFIGS + "/{id}"),),
    ),
    Operation(
        "GetExtendedAgentCard",
        models.GetExtendedAgentCardRequest,
        models.AgentCard,
        "tasks:read",
        get_extended_agent_card,
        (Route("GET", "/extendedAgentCard"),),
    ),
)

BY_NAME: Final = {operation.name: operation for operation in OPERATIONS}
SCOPES: Final = tuple(sorted({operation.scope for operation in OPERATIONS}))
"""What a caller must have one of to use a door at all."""
