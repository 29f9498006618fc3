"""ListTasks (A2A v1.0 §3.1.4), and the cursor that the native list shares with it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from app.auth.caller import CallContext
from app.auth.handles import Handles
from app.errors import InvalidArgument, InvalidParams, WaystationError
from app.ledger import tasks
from app.ledger.rows import JsonObject, LoadedTask
from app.operations.agent_doors import AgentDoor
from app.operations.answers import Answer, with_broker_metadata
from app.operations.deps import Operations
from app.operations.paging import PageTokens
from app.protocol.fold import view
from app.protocol.models import ListTasksRequest, format_timestamp
from app.protocol.states import TaskState

DEFAULT_PAGE_SIZE = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Cursor = tuple[datetime, UUID]


async def list_tasks(ops: Operations, ctx: CallContext, door: AgentDoor, request: ListTasksRequest) -> Answer:
    """A page of the caller's tasks of this agent, the latest status first. Raises InvalidParams for a bad pageToken."""
    tenant, size = ctx.caller.tenant, request.page_size or DEFAULT_PAGE_SIZE
    state = request.status if request.status is not TaskState.UNSPECIFIED else None
    after = request.status_timestamp_after
    tokens = TaskPages(ops.handles, filter_key(tenant, door.agent_id, request.context_id, state, after), InvalidParams)
    page = await tasks.list_tasks(
        ops.db,
        tenant,
        agent_id=door.agent_id,
        context_id=request.context_id or None,
        state=state,
        after=after,
        cursor=tokens.after(request.page_token),
        limit=size,
    )
    with_artifacts = request.include_artifacts is True
    shown = [
        with_broker_metadata(
            view(
                loaded.task,
                history_length=request.history_length,
                include_artifacts=with_artifacts,
                empty_artifacts=with_artifacts,
            ),
            {"lastSeq": loaded.head.last_seq},
        )
        for loaded in page.tasks
    ]
    body: JsonObject = {
        "tasks": shown,
        "nextPageToken": tokens.next(page.tasks) if page.more else "",
        "pageSize": size,
        "totalSize": page.total,
    }
    return Answer(body, total_capped=page.total_capped)


def filter_key(
    tenant: str, agent_id: str | None, context_id: str | None, state: TaskState | None, after: datetime | None
) -> list[object]:
    """What a cursor is bound to: it continues the list it came from and no other (security.md, Tenant isolation)."""
    return [
        tenant,
        agent_id or "",
        context_id or "",
        int(state) if state is not None else 0,
        format_timestamp(after) if after else "",
    ]


class TaskPages:
    """The page tokens of a list of tasks: the last one's status time and id."""

    def __init__(self, handles: Handles, filters: list[object], error: type[WaystationError] = InvalidArgument) -> None:
        self._tokens = PageTokens(handles, "tasks", filters, error)

    def after(self, token: str) -> Cursor | None:
        """Where the page begins; None for the first. Raises the list's error."""
        position = self._tokens.after(token)
        if position is None:
            return None
        micros, _, task_id = position.partition(" ")
        return _EPOCH + timedelta(microseconds=int(micros)), UUID(task_id)

    def next(self, page: Sequence[LoadedTask]) -> str:
        """The token of the page after this one."""
        last = page[-1].head
        return self._tokens.next(f"{(last.status_at - _EPOCH) // timedelta(microseconds=1)} {last.task_id}")
