"""The JSON-RPC 2.0 door (A2A v1.0 §9), made from the operation table; methods of 0.3 are ``transports.compat``'s."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app import offload
from app.errors import InvalidParams, InvalidRequest, MethodNotFound, ParseError
from app.operations.registry import BY_NAME, OPERATIONS, SCOPES, Operation
from app.protocol import strict_json
from app.protocol.models import parse
from app.protocol.version import V0_3, V1_0, negotiate
from app.transports import compat, errors
from app.transports.a2a import cursor_in, enter, in_envelope, negotiated, respond
from app.transports.call_context import MAX_ID_CHARACTERS, Call, require_any, require_json
from app.transports.endpoints import Door, Endpoint
from app.transports.errors import RequestId
from app.transports.urls import resource_metadata_url

_ENVELOPE: dict[str, Any] = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "number", "null"]},
        "method": {"enum": [*(operation.name for operation in OPERATIONS), *compat.METHODS]},
        "params": {"type": "object"},
    },
}


def endpoints(*paths: str) -> Iterator[Endpoint]:
    """The door at each of ``paths``. The scope is the operation's; a caller with none of them is refused at once."""
    for path in paths:
        yield Endpoint(
            method="POST",
            path=path,
            access=SCOPES,
            handle=handle,
            operation="JsonRpc",
            summary="A2A operations, JSON-RPC 2.0",
            door=Door.JSONRPC,
            tags=("a2a",),
            request=_ENVELOPE,
            response={"type": "object"},
        )


async def handle(call: Call) -> Response:
    """Every answer carries the request's id, equal in value and type, or null where it could not be read."""
    request_id: RequestId = None
    try:
        door = await enter(call)
        message = await _read(call)
        request_id = _id(message)
        method, params = _envelope(message)
        if method in compat.METHODS:
            return await compat.jsonrpc(call, door, method, params, request_id)
        operation = _operation(method, call.ctx.version)
        require_any(call.caller, (operation.scope,))
        ctx = negotiated(call.ctx, door)
        if operation.streaming:
            ctx = replace(ctx, resume_after=cursor_in(params))
        request = parse(operation.request, params)
        return await respond(call, ctx, operation, door, request, in_envelope(request_id))
    except ClientDisconnect:
        raise
    except Exception as error:
        metadata_url = resource_metadata_url(call.gateway.settings, call.request)
        return errors.jsonrpc_response(errors.known(error), call.request.headers, metadata_url, request_id)


async def _read(call: Call) -> dict[str, Any]:
    raw = await call.body()
    require_json(call.request)
    if not raw.strip():
        raise ParseError
    message = await offload.run(len(raw), lambda: strict_json.loads(raw))
    if isinstance(message, list):
        raise InvalidRequest("Batches are not supported")
    if not isinstance(message, dict):
        raise InvalidRequest("The request must be an object")
    return cast("dict[str, Any]", message)


def _id(message: dict[str, Any]) -> RequestId:
    """Raises InvalidRequest for an id of another type, and for a long one: every frame of a stream repeats it."""
    request_id: object = message.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int | float | None):
        raise InvalidRequest("id must be a string, a number or null")
    if isinstance(request_id, str) and len(request_id) > MAX_ID_CHARACTERS:
        raise InvalidRequest(f"id must have at most {MAX_ID_CHARACTERS} characters")
    return request_id


def _envelope(message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Method and params; absent params are empty ones. Raises InvalidRequest, or InvalidParams for the params."""
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest('jsonrpc must be "2.0"')
    method: object = message.get("method")
    if not isinstance(method, str) or not method:
        raise InvalidRequest("method must be a string")
    params: object = message.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise InvalidParams("params must be an object", violations=[("params", "must be an object")])
    return method, cast("dict[str, Any]", params)


def _operation(method: str, version: str) -> Operation:
    operation = BY_NAME.get(method)
    if operation is not None:
        return operation
    negotiate(version, supported=(V0_3, V1_0))
    raise MethodNotFound(f"Unknown method {method[:64]!r}")
