"""The readers' native API (native-api.md, Readers): event replay, tasks, turns. Mounted by ``transports.routes``."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from app.errors import InvalidArgument
from app.operations import read_events, read_tasks
from app.operations.cursors import latest
from app.operations.read_events import EventFrame
from app.protocol import strict_json
from app.protocol.models import parse
from app.protocol.models.scalars import OptionalId, OptionalState, PageSize, Text, Timestamp
from app.protocol.states import TaskState
from app.transports.call_context import Call
from app.transports.endpoints import Endpoint
from app.transports.sse import frame, stream_response

READ = ("tasks:read",)
DEFAULT_PAGE_SIZE = 50


class _Query(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")


class EventsQuery(_Query):
    """``limit`` is of JSON pages; ``follow`` of streams: false ends them at the log's end as it is now."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 500
    follow: bool = True


class PageQuery(_Query):
    page_size: PageSize = None
    page_token: Text = ""


class TasksQuery(PageQuery):
    """``after`` is a status time, inclusive."""

    agent: OptionalId = ""
    state: OptionalState = TaskState.UNSPECIFIED
    context_id: OptionalId = ""
    after: Timestamp | None = None


async def events(call: Call) -> Response:
    """``text/event-stream`` unless the client wants JSON; 204 when the cursor has seen the terminal event."""
    raw = call.query()
    query = parse(EventsQuery, raw, error=InvalidArgument)
    cursor = latest(call.ctx.last_event_id, raw.get("after_sequence_number"))
    ops, caller, task_id = call.gateway.operations, call.caller, call.path("id")
    if _wants_json(call.request.headers.get("accept", "")):
        return _json(await read_events.read_page(ops, caller, task_id, cursor, query.limit))
    slot = call.gateway.streams.take(caller)
    call.on_close(slot.release)
    stream = await read_events.open_stream(ops, caller, task_id, cursor, follow=query.follow)
    if stream is None:
        return Response(status_code=204)
    call.on_close(stream.close)

    def show(event: EventFrame) -> bytes:
        return frame(event.body, cursor=f"{stream.reader.incarnation}.{event.seq}", event=event.kind)

    return stream_response(call, stream, show)


async def list_tasks(call: Call) -> Response:
    """A page of the tenant's tasks, the latest status first."""
    query = parse(TasksQuery, call.query(), error=InvalidArgument)
    page = await read_tasks.read_tasks(
        call.gateway.operations,
        call.caller,
        agent_id=query.agent or None,
        context_id=query.context_id or None,
        state=query.state or None,
        after=query.after,
        page_size=query.page_size or DEFAULT_PAGE_SIZE,
        page_token=query.page_token,
    )
    return _json(strict_json.dumps(page))


async def get_task(call: Call) -> Response:
    """The task, who holds it, where it waits."""
    return _json(strict_json.dumps(await read_tasks.read_task(call.gateway.operations, call.caller, call.path("id"))))


async def turns(call: Call) -> Response:
    """A page of the task's turns, in order."""
    query = parse(PageQuery, call.query(), error=InvalidArgument)
    page = await read_tasks.read_turns(
        call.gateway.operations,
        call.caller,
        call.path("id"),
        page_size=query.page_size or DEFAULT_PAGE_SIZE,
        page_token=query.page_token,
    )
    return _json(strict_json.dumps(page))


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/tasks/{id}/events", READ, events, "readEvents",
        "A task's events after a cursor: a stream, or a page with Accept: application/json", tags=("readers",),
        query={
            "after_sequence_number": "the cursor; of it and the header Last-Event-ID the greater counts",
            "follow": "false ends the stream at the log's present end",
            "limit": "1..1000 events of a JSON page, default 500",
        },
        response={"type": "object"}, streams=True,
    ),
    Endpoint(
        "GET", "/v1/tasks", READ, list_tasks, "listTasks", "The tenant's tasks", tags=("readers",),
        query={
            "agent": "", "state": "a full A2A name", "contextId": "", "after": "status time, inclusive",
            "pageSize": "1..100, default 50", "pageToken": "nextPageToken of the page before",
        },
        response={"type": "object"},
    ),
    Endpoint(
        "GET", "/v1/tasks/{id}", READ, get_task, "getTask", "A task and all about it", tags=("readers",),
        response={"type": "object"},
    ),
    Endpoint(
        "GET", "/v1/tasks/{id}/turns", READ, turns, "listTurns", "A task's turns", tags=("readers",),
        query={"pageSize": "1..100, default 50", "pageToken": "nextPageToken of the page before"},
        response={"type": "object"},
    ),
)  # fmt: skip


def _wants_json(accept: str) -> bool:
    return "application/json" in accept and "text/event-stream" not in accept


def _json(body: str) -> Response:
    return Response(body, headers={"Cache-Control": "no-store"}, media_type="application/json")
