"""The official SDK's doors, set up as its documentation does, over a request handler that only answers. Called by
``door_side.py`` in the SDK's own environment. It verifies no token."""

from typing import Any

from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.types import ListTasksResponse, Task
from google.protobuf import json_format
from starlette.applications import Starlette

from tests.bench.door_calls import COMPLETED, LISTED, SUBMITTED
from tests.bench.door_side import Application


class CannedHandler(RequestHandler):
    """Checks the parameters as the SDK's DefaultRequestHandler does, then gives the one answer."""

    completed = json_format.ParseDict(COMPLETED, Task())
    submitted = json_format.ParseDict(SUBMITTED, Task())
    listed = json_format.ParseDict(LISTED, ListTasksResponse())

    @validate_request_params
    async def on_get_task(self, params: Any, context: Any) -> Task:
        return self.completed

    @validate_request_params
    async def on_message_send(self, params: Any, context: Any) -> Task:
        return self.submitted

    @validate_request_params
    async def on_list_tasks(self, params: Any, context: Any) -> ListTasksResponse:
        return self.listed

    async def _not_called(self, params: Any, context: Any) -> Any:
        raise NotImplementedError

    on_cancel_task = _not_called
    on_message_send_stream = _not_called
    on_subscribe_to_task = _not_called
    on_create_task_push_notification_config = _not_called
    on_get_task_push_notification_config = _not_called
    on_list_task_push_notification_configs = _not_called
    on_delete_task_push_notification_config = _not_called
    on_get_extended_agent_card = _not_called


def application() -> Application:
    handler = CannedHandler()
    routes = [
        *create_jsonrpc_routes(handler, rpc_url="/", enable_v0_3_compat=True),
        *create_rest_routes(handler, path_prefix="/rest"),
    ]
    return Application(Starlette(routes=routes), {"rpc": "/", "rest": "/rest"})
