"""The older ``/tasks`` REST dialect (legacy-tasks.md) below an agent's base URL, over the A2A operations.

Its clients know no headers but Authorization, follow no redirect and parse server-sent events naively.
"""

from collections.abc import Iterator
from dataclasses import replace

from starlette.responses import Response

from app import offload
from app.errors import TaskNotCancelable, TaskTerminal
from app.operations import read_events
from app.operations.agent_card import active_extensions, require_streaming
from app.operations.agent_doors import AgentDoor
from app.operations.answers import load_of_agent
from app.operations.cancel_task import cancel_task
from app.operations.cursors import Cursor, latest
from app.operations.get_task import get_task
from app.operations.read_events import EventFrame, EventStream
from app.operations.send_message import send_message
from app.protocol import legacy
from app.protocol.events import RESUME_EXTENSION
from app.protocol.legacy import Json, Submission, Trail
from app.protocol.legacy_events import LegacyLog
from app.protocol.models import (
    CancelTaskRequest,
    GetTaskRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    parse,
)
from app.protocol.strict_json import dumps_ascii, loads_trusted
from app.transports.a2a import REPLAYED_HEADER, enter
from app.transports.call_context import Call
from app.transports.endpoints import Endpoint
from app.transports.sse import frame, stream_response

TRAIL_EVENTS = 100
"""A poll reads so many events from each end of the log, however long it is."""


def endpoints(base: str) -> Iterator[Endpoint]:
    """The door below ``base`` (``/agents/{agent}``, or nothing for the default agent)."""
    task, tags, shape = f"{base}/tasks/{{id}}", ("legacy",), {"type": "object"}
    yield Endpoint(
        "POST", f"{base}/tasks", ("tasks:write",), submit, "legacySubmit", "Submit a task, older dialect",
        tags=tags, request=Submission, response=shape,
    )  # fmt: skip
    yield Endpoint("GET", task, ("tasks:read",), show, "legacyTask", "A task, older dialect", tags=tags, response=shape)
    yield Endpoint(
        "POST", f"{task}/cancel", ("tasks:cancel",), cancel, "legacyCancel", "Cancel a task, older dialect",
        tags=tags, response=shape,
    )  # fmt: skip
    yield Endpoint(
        "GET", f"{task}/stream", ("tasks:read",), stream, "legacyStream", "A task's events, older dialect",
        tags=tags, response=shape, streams=True,
    )  # fmt: skip


async def submit(call: Call) -> Response:
    """Stored when it is answered; nobody waits for the agent."""
    door = await _enter(call)
    body = await call.json()
    submission = parse(Submission, {} if body is None else body)
    key = call.ctx.idempotency_key
    message = await offload.run(call.body_bytes, lambda: legacy.user_message(submission, key))
    request = SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=True))
    ctx = replace(call.ctx, body_bytes=call.body_bytes)
    answer = await send_message(call.gateway.operations, ctx, door, request)
    return await _answer(call, answer.body["task"], replayed=answer.replayed)


async def show(call: Call) -> Response:
    """The task as it is."""
    door = await _enter(call)
    answer = await get_task(call.gateway.operations, call.ctx, door, GetTaskRequest(id=_task_id(call)))
    return await _answer(call, answer.body)


async def cancel(call: Call) -> Response:
    """The canceled task; 409 when it has ended before. A body may come, and says nothing."""
    door = await _enter(call)
    await call.body()
    request = CancelTaskRequest(id=_task_id(call))
    try:
        answer = await cancel_task(call.gateway.operations, call.ctx, door, request)
    except TaskNotCancelable as error:
        raise TaskTerminal(error.message, metadata=error.metadata) from None
    return await _answer(call, answer.body)


async def stream(call: Call) -> Response:
    """The whole log and what is still to come, until the task ends; after a Last-Event-ID what its reader has not seen.

    The log is read from the start in any case, for what an event is here depends on those before it. A cursor that
    this log cannot serve counts as none: the dialect has no word for it.
    """
    door = await _enter(call)
    require_streaming(door.agent)
    ops, caller, task_id = call.gateway.operations, call.caller, _task_id(call)
    cursor = latest(call.ctx.last_event_id)
    await load_of_agent(ops, caller.tenant, door.agent_id, task_id)
    call.on_close(call.gateway.streams.take(caller).release)
    log = await read_events.open_stream(ops, caller, task_id, None, follow=True)
    assert log is not None, "no log ends before its first event"
    call.on_close(log.close)
    seen, told = _seen(log, cursor), LegacyLog(task_id)

    def show_event(event: EventFrame) -> bytes:
        """Of several frames for one event the last has the id: who has it has seen them all."""
        frames = told.tell(loads_trusted(event.body))
        if event.seq <= seen:
            return b""
        ids = [None] * (len(frames) - 1) + [f"{log.reader.incarnation}.{event.seq}"]
        return b"".join(
            frame(dumps_ascii(data), cursor=cursor, event=name)
            for cursor, (name, data) in zip(ids, frames, strict=False)
        )

    return stream_response(call, log, show_event)


async def _enter(call: Call) -> AgentDoor:
    """The agent. Raises ExtensionSupportRequired, as all doors do, for one whose card requires an extension: a client
    that knows it must ask for it here too."""
    door = await enter(call)
    active_extensions(door.agent, call.ctx.extensions)
    return door


def _task_id(call: Call) -> str:
    """Raises InvalidParams, as all doors do, for what is longer than any id."""
    return parse(GetTaskRequest, {"id": call.path("id")}).id


def _seen(log: EventStream, cursor: Cursor | None) -> int:
    if cursor is None or cursor.incarnation not in (None, log.reader.incarnation) or cursor.seq > log.reader.last_seq:
        return 0
    return cursor.seq


async def _answer(call: Call, task: Json, *, replayed: bool = False) -> Response:
    trail = await _trail(call, task["id"], task["metadata"][RESUME_EXTENSION]["lastSeq"])
    body = legacy.printed(legacy.legacy_task(task, trail))
    headers = {"Cache-Control": "no-store"} | ({REPLAYED_HEADER: "true"} if replayed else {})
    return Response(body, 200, headers, "application/json")


async def _trail(call: Call, task_id: str, last_seq: int) -> Trail:
    """What the first and the last events up to ``last_seq`` tell; of a long log nothing is known of those between."""
    trail = Trail()
    seen = trail.follow(await _page(call, task_id, 0), last_seq)
    if seen < last_seq:
        trail.follow(await _page(call, task_id, max(seen, last_seq - TRAIL_EVENTS)), last_seq)
    return trail


async def _page(call: Call, task_id: str, after: int) -> list[Json]:
    ops = call.gateway.operations
    page = await read_events.read_page(ops, call.caller, task_id, Cursor(after), TRAIL_EVENTS)
    events: list[Json] = (await offload.run(len(page), lambda: loads_trusted(page)))["events"]
    return events
