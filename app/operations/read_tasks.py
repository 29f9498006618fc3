"""The native reader's tasks: all of the caller's tenant, whichever agent's (native-api.md, Readers)."""

from datetime import datetime

from app.auth.caller import Caller
from app.errors import NotFound
from app.ledger import events, tasks
from app.ledger.rows import JsonObject, LoadedTask, TaskHead
from app.operations.answers import parse_task_id, queue_place
from app.operations.deps import Operations
from app.operations.list_tasks import TaskPages, filter_key
from app.operations.paging import PageTokens
from app.protocol.fold import view
from app.protocol.models import format_timestamp
from app.protocol.states import TaskState


async def read_task(ops: Operations, caller: Caller, task_id: str) -> JsonObject:
    """One task with everything the broker knows of it. Raises NotFound, Unavailable."""
    loaded = await _load(ops, caller, task_id)
    head = loaded.head
    return {
        "task": loaded.task,
        **_summary(head),
        "minSeq": events.MIN_SEQ,
        "lease": _lease(head),
        "queue": await queue_place(ops, head),
        "pendingActions": [],
        "effects": {},
    }


async def read_tasks(
    ops: Operations,
    caller: Caller,
    *,
    agent_id: str | None,
    context_id: str | None,
    state: TaskState | None,
    after: datetime | None,
    page_size: int,
    page_token: str,
) -> JsonObject:
    """A page, the latest status first; tasks without history and artifacts. Raises InvalidArgument for a bad token."""
    tokens = TaskPages(ops.handles, ["native", *filter_key(caller.tenant, agent_id, context_id, state, after)])
    page = await tasks.list_tasks(
        ops.db,
        caller.tenant,
        agent_id=agent_id,
        context_id=context_id,
        state=state,
        after=after,
        cursor=tokens.after(page_token),
        limit=page_size,
    )
    return {
        "tasks": [
            {"task": view(loaded.task, history_length=0, include_artifacts=False), **_summary(loaded.head)}
            for loaded in page.tasks
        ],
        "nextPageToken": tokens.next(page.tasks) if page.more else "",
    }


async def read_turns(ops: Operations, caller: Caller, task_id: str, *, page_size: int, page_token: str) -> JsonObject:
    """A page of a task's turns, in order. Raises NotFound, InvalidArgument for a bad token, Unavailable."""
    parsed = parse_task_id(task_id)
    head = None if parsed is None else await tasks.head(ops.db, caller.tenant, parsed)
    if head is None:
        raise NotFound
    tokens = PageTokens(ops.handles, "turns", [caller.tenant, task_id])
    after = int(tokens.after(page_token) or 0)
    turns = await tasks.turns(ops.db, caller.tenant, head.task_id, after=after, limit=page_size + 1)
    page = turns[:page_size]
    more = len(turns) > page_size
    return {
        "turns": [{"turn": turn.turn, "state": turn.state} for turn in page],
        "nextPageToken": tokens.next(str(page[-1].turn)) if more else "",
        "lastSeq": head.last_seq,
    }


async def _load(ops: Operations, caller: Caller, task_id: str) -> LoadedTask:
    parsed = parse_task_id(task_id)
    loaded = None if parsed is None else await tasks.load(ops.db, caller.tenant, parsed)
    if loaded is None:
        raise NotFound
    return loaded


def _summary(head: TaskHead) -> JsonObject:
    return {
        "agent": head.agent_id,
        "state": head.state.wire,
        "lastSeq": head.last_seq,
        "terminalSeq": head.terminal_seq,
        "turn": head.turn,
        "attempt": head.attempt,
        "fence": head.fence,
        "createdAt": format_timestamp(head.created_at),
    }


def _lease(head: TaskHead) -> JsonObject | None:
    if head.worker_id is None or head.lease_until is None:
        return None
    return {"workerId": head.worker_id, "expiresAt": format_timestamp(head.lease_until)}
