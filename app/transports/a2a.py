"""What the A2A doors have in common: which agent, which headers, and an operation's stream as frames."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from starlette.responses import Response

from app.auth.caller import CallContext
from app.operations.agent_card import active_extensions
from app.operations.agent_doors import AgentDoor, open_door
from app.operations.answers import Answer
from app.operations.registry import Operation
from app.operations.subscribe import Item, TaskStream
from app.protocol import strict_json
from app.protocol.events import RESUME_EXTENSION
from app.protocol.models.base import WireModel
from app.protocol.version import EXTENSIONS_HEADER, V1_0, negotiate
from app.transports.call_context import Call
from app.transports.sse import Source, frame, stream_response

RequestId = str | int | float | None

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


async def run_unary(call: Call, ctx: CallContext, operation: Operation, door: AgentDoor, request: WireModel) -> Answer:
    answer = await operation.function(call.gateway.operations, ctx, door, request)
    assert isinstance(answer, Answer), "a unary operation gives an Answer"
    return answer


async def run_stream(
    call: Call,
    ctx: CallContext,
    operation: Operation,
    door: AgentDoor,
    request: WireModel,
    wrap: tuple[str, str],
    dialect: Callable[[TaskStream], Source[Item]] = lambda stream: stream,
) -> Response:
    """The operation's stream; its first frames are there already, so what can fail has failed before the headers.

    ``wrap`` is put around each StreamResponse, as ``dialect`` shows it. Raises TooManyRequests before anything is
    stored.
    """
    slot = call.gateway.streams.take(ctx.caller)
    call.on_close(slot.release)
    stream = await operation.function(call.gateway.operations, ctx, door, request)
    assert isinstance(stream, TaskStream), "a streaming operation gives a TaskStream"
    call.on_close(stream.close)
    before, after = wrap

    def show(item: Item) -> bytes:
        """No ``event:`` name, and ids of durable rows only."""
        cursor = None if item.seq is None else f"{stream.reader.incarnation}.{item.seq}"
        return frame(f"{before}{item.body}{after}", cursor=cursor)

    return stream_response(call, dialect(stream), show, answer_headers(ctx, replayed=stream.replayed))


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


def result_of(request_id: RequestId) -> tuple[str, str]:
    """What stands before and after a result in a JSON-RPC response."""
    return f'{{"jsonrpc":"2.0","id":{strict_json.dumps(request_id)},"result":', "}"


def cursor_in(params: dict[str, Any]) -> str | None:
    """The cursor in a subscription's metadata, under the resume extension's URI: a cursor itself, or
    ``{"lastEventId": cursor}``. Anything else is no cursor, and is passed on to be refused as malformed."""
    metadata = params.get("metadata")
    value = cast("dict[str, object]", metadata).get(RESUME_EXTENSION) if isinstance(metadata, dict) else None
    value = cast("dict[str, object]", value).get("lastEventId") if isinstance(value, dict) else value
    if value is None:
        return None
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else "malformed"
