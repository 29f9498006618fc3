"""What the A2A doors have in common: which agent, which version and extensions, and an operation's results over HTTP.

A door of HTTP is ``enter``, ``negotiated``, its own reading of the request, and ``respond``.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from starlette.responses import Response

from app import offload
from app.auth.caller import CallContext
from app.operations.agent_card import active_extensions
from app.operations.agent_doors import AgentDoor, open_door
from app.operations.registry import Operation
from app.operations.subscribe import Item, TaskStream
from app.protocol import strict_json
from app.protocol.events import RESUME_EXTENSION
from app.protocol.models.base import WireModel
from app.protocol.version import EXTENSIONS_HEADER, V1_0, negotiate
from app.transports.call_context import Call
from app.transports.errors import RequestId
from app.transports.sse import Source, frame, stream_response

JsonObject = dict[str, Any]

REPLAYED_HEADER = "Waystation-Replayed"
TOTAL_CAPPED_HEADER = "Waystation-Total-Capped"


async def enter(call: Call) -> AgentDoor:
    """The agent of the URL; at the root the default agent. Raises NotFound for one that the caller must not know of."""
    agent_id = call.path("agent") or call.gateway.settings.default_agent or ""
    return await open_door(call.gateway.operations, call.caller, agent_id)


def negotiated(ctx: CallContext, door: AgentDoor, version: str = V1_0) -> CallContext:
    """The context with the extensions that are active. Raises VersionNotSupported when the call is not of ``version``,
    and ExtensionSupportRequired."""
    negotiate(ctx.version, supported=(version,))
    active = active_extensions(door.agent, ctx.extensions)
    return ctx if active == ctx.extensions else replace(ctx, extensions=active)


@dataclass(frozen=True, slots=True)
class Rendering:
    """How a door of HTTP shows an operation's results: ``before`` and ``after`` are put around each, ``answer`` and
    ``stream`` put them in the words of an older version. Of a large answer that takes long: not on the event loop."""

    before: str = ""
    after: str = ""
    media_type: str = "application/json"
    answer: Callable[[JsonObject], object] | None = None
    stream: Callable[[TaskStream], Awaitable[Source[Item]]] | None = None


async def respond(
    call: Call, ctx: CallContext, operation: Operation, door: AgentDoor, request: WireModel, rendering: Rendering
) -> Response:
    """Carry out the operation: its answer, or its open stream.

    The first frames of a stream are there already, so what can fail has failed before the headers. Raises what the
    operation raises, and TooManyRequests for a stream, before anything is stored.
    """
    if call.body_bytes:
        ctx = replace(ctx, body_bytes=call.body_bytes)
    if operation.streaming:
        call.on_close(call.gateway.streams.take(ctx.caller).release)
    result = await operation.function(call.gateway.operations, ctx, door, request)
    if isinstance(result, TaskStream):
        call.on_close(result.close)
        return await _stream(call, ctx, result, rendering)
    printed, show = strict_json.dumps(result.body), rendering.answer
    if show is not None:
        printed = await offload.run(len(printed), lambda: strict_json.dumps(show(result.body)))
    headers = answer_headers(ctx, replayed=result.replayed, total_capped=result.total_capped)
    return Response(f"{rendering.before}{printed}{rendering.after}", 200, headers, rendering.media_type)


async def _stream(call: Call, ctx: CallContext, stream: TaskStream, rendering: Rendering) -> Response:
    before, after = rendering.before, rendering.after

    def show(item: Item) -> bytes:
        """No ``event:`` name, and ids of durable rows only."""
        cursor = None if item.seq is None else f"{stream.reader.incarnation}.{item.seq}"
        return frame(f"{before}{item.body}{after}", cursor=cursor)

    source = await rendering.stream(stream) if rendering.stream else stream
    return stream_response(call, source, show, answer_headers(ctx, replayed=stream.replayed))


def answer_headers(ctx: CallContext, *, replayed: bool = False, total_capped: bool = False) -> dict[str, str]:
    """The extensions that were activated, and what the broker says of the answer itself."""
    headers: dict[str, str] = {}
    if ctx.extensions:
        headers[EXTENSIONS_HEADER] = ", ".join(sorted(ctx.extensions))
    if replayed:
        headers[REPLAYED_HEADER] = "true"
    if total_capped:
        headers[TOTAL_CAPPED_HEADER] = "true"
    return headers


def in_envelope(request_id: RequestId) -> Rendering:
    """Each result as a JSON-RPC response with the request's id."""
    return Rendering(before=f'{{"jsonrpc":"2.0","id":{strict_json.dumps(request_id)},"result":', after="}")


def cursor_in(params: dict[str, Any]) -> str | None:
    """The cursor in a subscription's metadata, under the resume extension's URI: a cursor itself, or
    ``{"lastEventId": cursor}``. Anything else is no cursor, and is passed on to be refused as malformed."""
    metadata = params.get("metadata")
    value = cast("dict[str, object]", metadata).get(RESUME_EXTENSION) if isinstance(metadata, dict) else None
    value = cast("dict[str, object]", value).get("lastEventId") if isinstance(value, dict) else value
    if value is None:
        return None
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else "malformed"
