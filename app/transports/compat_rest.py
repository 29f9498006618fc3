"""The HTTP+JSON door of A2A 0.3 (``/v1/…`` below the door's URL): its paths, over the methods of ``transports.compat``.

Bodies are the ProtoJSON that the official 0.3 SDKs send and read; on input 0.3's JSON objects are taken as well.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final, cast

from starlette.requests import Request
from starlette.responses import Response

from app.errors import InvalidParams
from app.protocol.v0_3.spelling import Json, Spelling
from app.transports.a2a import Rendering, enter
from app.transports.call_context import Call
from app.transports.compat import METHODS, answer, context
from app.transports.endpoints import Door, Endpoint
from app.transports.rest import BODY_VERBS

_CONFIGS: Final = "/tasks/{id}/pushNotificationConfigs"
ROUTES: Final = (
    ("POST", "/message:send", "message/send"),
    ("POST", "/message:stream", "message/stream"),
    ("POST", "/tasks/{id}:cancel", "tasks/cancel"),
    ("GET", "/tasks/{id}:subscribe", "tasks/resubscribe"),
    ("POST", "/tasks/{id}:subscribe", "tasks/resubscribe"),
    ("GET", "/tasks/{id}", "tasks/get"),  # after the others: {id} would match "x:cancel" as well
    ("POST", _CONFIGS, "tasks/pushNotificationConfig/set"),
    ("GET", _CONFIGS, "tasks/pushNotificationConfig/list"),
    ("GET", _CONFIGS + "/{pushNotificationConfigId}", "tasks/pushNotificationConfig/get"),
    ("DELETE", _CONFIGS + "/{pushNotificationConfigId}", "tasks/pushNotificationConfig/delete"),
    ("GET", "/card", "agent/getAuthenticatedExtendedCard"),
)
_PATH_FIELDS: Final = ("id", "pushNotificationConfigId")


def endpoints(base: str) -> Iterator[Endpoint]:
    """The door at ``base`` (``/agents/{agent}/a2a/v1``, or ``/a2a/v1`` for the default agent)."""
    for verb, path, name in ROUTES:
        operation = METHODS[name].operation
        yield Endpoint(
            method=verb,
            path=base + path,
            access=(operation.scope,),
            handle=partial(_handle, name=name),
            operation=operation.name,
            summary=f"{name}, HTTP+JSON of A2A 0.3",
            door=Door.REST_V0_3,
            tags=("a2a",),
            streams=operation.streaming,
            hidden=True,
        )


async def _handle(call: Call, name: str) -> Response:
    door = await enter(call)
    ctx = replace(context(call, door), resume_after=call.request.query_params.get("after_sequence_number"))
    return await answer(call, ctx, door, METHODS[name], await _fields(call), _spelling(call.request), Rendering())


async def _fields(call: Call) -> Json:
    """Body or query, and the path, which wins. An empty body is an empty request."""
    fields: object = call.query(InvalidParams)
    if call.request.method in BODY_VERBS and (body := await call.json()) is not None:
        fields = body
    if not isinstance(fields, dict):
        raise InvalidParams("The body must be an object", violations=[("", "must be an object")])
    path = {name: call.path(name) for name in _PATH_FIELDS if call.path(name)}
    if "id" in path:
        path["taskId"] = path["id"]
    return {**cast("Json", fields), **path}


def _spelling(request: Request) -> Spelling:
    """The official Python SDK is known by its HTTP client; no field of its requests tells it from others."""
    python = request.headers.get("user-agent", "").startswith("python-httpx/")
    return Spelling.PROTO_TWICE if python else Spelling.PROTO
