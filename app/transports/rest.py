"""The HTTP+JSON door (A2A v1.0 §11), made from the operation table.

Below the door's URL each path also exists under ``/{tenant}``: A2A's routing key, which must be the agent's id.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from starlette.responses import Response

from app.errors import InvalidParams, NotFound
from app.operations.registry import OPERATIONS, Operation, Route
from app.protocol.models import parse, parse_query
from app.protocol.models.base import WireModel
from app.transports.a2a import Rendering, enter, negotiated, respond
from app.transports.call_context import Call
from app.transports.endpoints import Endpoint, media_type

BODY_VERBS = frozenset({"POST"})
_PATH_FIELDS = {"id": ("id",), "task_id": ("task_id", "taskId")}
"""Path parameters, with their spellings in a body or a query."""


def endpoints(base: str) -> Iterator[Endpoint]:
    """The door at ``base`` (``/agents/{agent}/a2a``, or ``/a2a`` for the default agent)."""
    routes = [(operation, route) for operation in OPERATIONS for route in operation.routes]
    routes.sort(key=lambda row: "}:" not in row[1].path)  # a {id} would match "x:cancel" as well
    for prefix in (base, base + "/{tenant}"):
        for operation, route in routes:
            yield _endpoint(prefix, operation, route)


def _endpoint(prefix: str, operation: Operation, route: Route) -> Endpoint:
    async def handle(call: Call) -> Response:
        return await _handle(call, operation, with_body=route.verb in BODY_VERBS)

    with_body = route.verb in BODY_VERBS
    return Endpoint(
        method=route.verb,
        path=prefix + route.path,
        access=(operation.scope,),
        handle=handle,
        operation=operation.name,
        summary=f"{operation.name}, HTTP+JSON",
        tags=("a2a",),
        query={} if with_body else _query_fields(operation, route),
        request=operation.request if with_body else None,
        response=operation.response,
        streams=operation.streaming,
        hidden="{tenant}" in prefix,
    )


def _query_fields(operation: Operation, route: Route) -> dict[str, str]:
    fields = operation.request.model_fields
    return {
        str(field.alias or name): "" for name, field in fields.items() if f"{{{name}}}" not in route.path + "{tenant}"
    }


async def _handle(call: Call, operation: Operation, *, with_body: bool) -> Response:
    door = await enter(call)
    routing_key = call.path("tenant")
    if routing_key and routing_key != door.agent_id:
        raise NotFound
    ctx = negotiated(call.ctx, door)
    request = await _request(call, operation, with_body=with_body)
    _check_routing_key(request, routing_key)
    if operation.streaming:
        ctx = replace(ctx, resume_after=call.request.query_params.get("after_sequence_number"))
    return await respond(call, ctx, operation, door, request, Rendering(media_type=media_type(call.request)))


async def _request(call: Call, operation: Operation, *, with_body: bool) -> WireModel:
    """The request of body, query and path; path parameters win. An empty body is an empty request."""
    path = {name: value for name in _PATH_FIELDS if (value := call.path(name))}
    overridden = {spelling for name in path for spelling in _PATH_FIELDS[name]}
    query = call.query(InvalidParams)
    if not with_body:
        fields = {name: value for name, value in query.items() if name not in overridden}
        return parse_query(operation.request, {**fields, **path})
    body = await call.json()
    if body is None:
        body = {}
    if not isinstance(body, dict):
        raise InvalidParams("The body must be an object", violations=[("", "must be an object")])
    fields = {key: value for key, value in cast("dict[str, object]", body).items() if key not in overridden}
    return parse(operation.request, {**fields, **path})


def _check_routing_key(request: WireModel, routing_key: str) -> None:
    """A routing key in the body says the same as the one in the path; without one in the path the URL decides."""
    given = getattr(request, "tenant", "")
    if routing_key and given and given != routing_key:
        text = "differs from the routing key of the path"
        raise InvalidParams(f"tenant: {text}", violations=[("tenant", text)])
