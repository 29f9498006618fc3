"""A2A 0.3: its methods as rows over the operation table, and what its two doors have in common.

JSON-RPC of 0.3 is the same URL as 1.0's: ``transports.jsonrpc`` hands a method of 0.3 over to ``jsonrpc`` here. The
paths of HTTP+JSON are in ``transports.compat_rest``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from starlette.responses import Response

from app import offload
from app.auth.caller import CallContext
from app.errors import ExtensionSupportRequired, WaystationError
from app.operations.agent_doors import AgentDoor
from app.operations.registry import BY_NAME, Operation
from app.operations.subscribe import Item, TaskStream
from app.protocol import strict_json
from app.protocol.models import parse
from app.protocol.v0_3 import requests, results
from app.protocol.v0_3.spelling import Json, Spelling
from app.protocol.version import EXTENSIONS_HEADER, V0_3, parse_extensions
from app.transports import errors
from app.transports.a2a import Rendering, cursor_in, in_envelope, negotiated, respond
from app.transports.call_context import Call, require_any
from app.transports.errors import RequestId
from app.transports.sse import HEADERS, frame

V0_3_EXTENSIONS_HEADER: Final = f"X-{EXTENSIONS_HEADER}"
EVENT_STREAM: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Method:
    """One method of 0.3: the operation it is, its params as a request of 1.0, and 1.0's answer as 0.3 shows it.

    The items of a streaming operation are shown by ``results.event``.
    """

    operation: Operation
    read: Callable[[Json, Spelling], Json]
    show: Callable[[Json, Spelling], object]


_GET_CONFIG: Final = "tasks/pushNotificationConfig/get"
_LIST_CONFIGS: Final = BY_NAME["ListTaskPushNotificationConfigs"]
_FIRST_CONFIG: Final = Method(_LIST_CONFIGS, requests.list_configs, results.first_config)

METHODS: Final[Mapping[str, Method]] = {
    "message/send": Method(BY_NAME["SendMessage"], requests.send_message, results.event),
    "message/stream": Method(BY_NAME["SendStreamingMessage"], requests.send_message, results.event),
    "tasks/get": Method(BY_NAME["GetTask"], requests.get_task, results.task),
    "tasks/cancel": Method(BY_NAME["CancelTask"], requests.task_id, results.task),
    "tasks/resubscribe": Method(BY_NAME["SubscribeToTask"], requests.task_id, results.event),
    "tasks/pushNotificationConfig/set": Method(
        BY_NAME["CreateTaskPushNotificationConfig"], requests.set_config, results.config
    ),
    _GET_CONFIG: Method(BY_NAME["GetTaskPushNotificationConfig"], requests.config_id, results.config),
    "tasks/pushNotificationConfig/list": Method(_LIST_CONFIGS, requests.list_configs, results.configs),
    "tasks/pushNotificationConfig/delete": Method(
        BY_NAME["DeleteTaskPushNotificationConfig"], requests.config_id, results.nothing
    ),
    "agent/getAuthenticatedExtendedCard": Method(BY_NAME["GetExtendedAgentCard"], requests.nothing, results.card),
}


class _ExtensionRequired(ExtensionSupportRequired):
    """With a code that 0.3 has: 1.0's says nothing to its clients."""

    jsonrpc_code = -32600


async def jsonrpc(call: Call, door: AgentDoor, name: str, params: Json, request_id: RequestId) -> Response:
    """The answer to a request for method ``name`` of 0.3. Raises what the JSON-RPC door shows.

    The official 0.3 clients read the error of a streaming method from an event only: a client that asks for an event
    stream, and not for JSON, gets the error as its one event.
    """
    method = METHODS[name]
    if name == _GET_CONFIG and not requests.names_config(params):
        method = _FIRST_CONFIG
    require_any(call.caller, (method.operation.scope,))
    try:
        ctx = replace(context(call, door), resume_after=cursor_in(params))
        return await answer(call, ctx, door, method, params, Spelling.JSON, in_envelope(request_id))
    except WaystationError as error:
        asked = ",".join(call.request.headers.getlist("accept"))  # the Python SDK sends two
        wants_event = method.operation.streaming and EVENT_STREAM in asked and "json" not in asked
        if not wants_event or errors.is_http_level(error):
            raise
        body = strict_json.dumps(errors.jsonrpc_body(error, request_id))
        return Response(frame(body), 200, HEADERS, EVENT_STREAM)


def context(call: Call, door: AgentDoor) -> CallContext:
    """The context of a call of 0.3. Raises VersionNotSupported for one that says it is of another version, and
    ExtensionSupportRequired."""
    asked = parse_extensions(*call.request.headers.getlist(V0_3_EXTENSIONS_HEADER))
    ctx = replace(call.ctx, extensions=call.ctx.extensions.union(asked))
    try:
        return negotiated(ctx, door, V0_3)
    except ExtensionSupportRequired as error:
        raise _ExtensionRequired(error.message, metadata=error.metadata) from None


async def answer(
    call: Call,
    ctx: CallContext,
    door: AgentDoor,
    method: Method,
    fields: Json,
    spelling: Spelling,
    rendering: Rendering,
) -> Response:
    """What ``method`` answers to ``fields``: a body or an open stream, in the words of 0.3."""
    request = parse(method.operation.request, method.read(fields, spelling))
    rendering = Rendering(
        rendering.before,
        rendering.after,
        answer=lambda body: method.show(body, spelling),
        stream=lambda stream: _ShownStream.of(stream, spelling),
    )
    response = await respond(call, ctx, method.operation, door, request, rendering)
    if EXTENSIONS_HEADER in response.headers:
        response.headers[V0_3_EXTENSIONS_HEADER] = response.headers[EXTENSIONS_HEADER]
    return response


class _ShownStream:
    """A task's stream with its items as events of 0.3."""

    def __init__(self, stream: TaskStream, spelling: Spelling) -> None:
        self.opening: Sequence[Item] = ()
        self._stream = stream
        self._spelling = spelling

    @classmethod
    async def of(cls, stream: TaskStream, spelling: Spelling) -> Self:
        shown = cls(stream, spelling)
        shown.opening = await shown._shown(stream.opening)
        return shown

    @property
    def ended(self) -> bool:
        return self._stream.ended

    async def next(self, timeout: float) -> Sequence[Item]:
        return await self._shown(await self._stream.next(timeout))

    async def _shown(self, items: Sequence[Item]) -> list[Item]:
        last = len(items) - 1 if self._stream.ended else None
        return await offload.run(
            sum(len(item.body) for item in items),
            lambda: [Item(item.seq, self._show(item.body, ends=at == last)) for at, item in enumerate(items)],
        )

    def _show(self, body: str, *, ends: bool) -> str:
        return strict_json.dumps(results.event(strict_json.loads_trusted(body), self._spelling, ends=ends))
