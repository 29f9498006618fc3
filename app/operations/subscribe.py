"""SendStreamingMessage and SubscribeToTask (A2A v1.0 §3.1.2, §3.1.6): one task's log as StreamResponses.

Snapshot and tail come from one point of the log: a Task frame at seq S, then the events after S. With the resume
extension and a cursor a subscription is an exact replay instead (resume-contract.md, How plain A2A clients see it).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from app.auth.caller import CallContext
from app.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from app.ledger import events, tasks
from app.ledger.rows import Event, JsonObject, LoadedTask, Sent
from app.operations.agent_card import require_streaming
from app.operations.agent_doors import AgentDoor
from app.operations.answers import facts_of, parse_task_id, with_broker_metadata
from app.operations.cursors import Cursor, Reset, judge, latest
from app.operations.deps import Operations
from app.operations.direct_reply import direct_reply
from app.operations.log_reader import LogReader
from app.operations.send_message import accept
from app.protocol.events import A2A_HIDDEN, RESUME_EXTENSION, EventKind
from app.protocol.fold import fold, view
from app.protocol.models import SendMessageRequest, SubscribeToTaskRequest
from app.protocol.states import TaskState
from app.protocol.strict_json import dumps, loads_trusted

MAX_FOLDED = 1000
"""A task with more events is shown as of now: folding the whole log for one frame is not worth its cost."""
_STATE = '"status":{"state":"'


@dataclass(frozen=True, slots=True)
class Item:
    """One StreamResponse as JSON text. ``seq`` is None for frames that are not rows of the log: they carry no id."""

    seq: int | None
    body: str


class TaskStream:
    """An open stream: send ``opening``, then what ``next`` gives, until ``ended``. ``close`` must be called."""

    def __init__(self, reader: LogReader, *, closes_at_input: bool, replayed: bool = False) -> None:
        self.reader = reader
        self.replayed = replayed
        self.opening: list[Item] = []
        self.ended = False
        self._closes_at_input = closes_at_input
        self._paused_at: int | None = None

    def close(self) -> None:
        self.reader.close()

    def open_with(
        self, task: JsonObject, seq: int, added: JsonObject, *, durable: bool, history_length: int | None = None
    ) -> None:
        """Begin with the Task as it stood at ``seq``, with an id if it is ``durable``, and go on after it."""
        shown = with_broker_metadata(view(task, history_length=history_length), {"lastSeq": seq, **added})
        self.opening.append(Item(seq if durable else None, dumps({"task": shown})))
        state = TaskState.parse(task["status"]["state"])
        self.ended = state.is_terminal or (self._closes_at_input and state is TaskState.INPUT_REQUIRED)

    def show_only(self, item: Item) -> None:
        """The stream is this one item."""
        self.opening, self.ended = [item], True

    def go_on_after(self, seq: int, last_seq: int) -> None:
        """The tail begins after ``seq``; the log is known to go up to ``last_seq``."""
        self.reader.after, self.reader.last_seq = seq, last_seq

    async def next(self, timeout: float) -> list[Item]:
        """What comes next within ``timeout`` seconds; empty when nothing did. Sets ``ended`` with the last items."""
        return self.take(await self.reader.next(timeout))

    def take(self, found: Sequence[Event]) -> list[Item]:
        """The items of events that the reader has read."""
        items: list[Item] = []
        for event in found:
            if self._stays_paused(event):
                self.ended = True
                return items
            if event.kind not in A2A_HIDDEN:
                items.append(Item(event.seq, event.body))
            if self._closes_at_input and _has_state(event, TaskState.INPUT_REQUIRED):
                self._paused_at = event.seq
        self.ended |= self.reader.ended or self._paused_at == self.reader.last_seq
        return items

    def _stays_paused(self, event: Event) -> bool:
        """A turn that was queued already answers INPUT_REQUIRED in the same transaction, by a bare WORKING at the next
        seq; any other event there means that the pause stood."""
        paused_at, self._paused_at = self._paused_at, None
        return paused_at is not None and not _has_state(event, TaskState.WORKING)


def _has_state(event: Event, state: TaskState) -> bool:
    """Whether a status event says ``state``. Read off the stored text: its first members are the broker's own."""
    if event.kind not in (EventKind.STATUS, EventKind.ACTION_REQUIRED):
        return False
    start = event.body.find(_STATE) + len(_STATE)
    return event.body.startswith(state.wire + '"', start)


async def send_streaming_message(
    ops: Operations, ctx: CallContext, door: AgentDoor, request: SendMessageRequest
) -> TaskStream:
    """The message's task, from its Task frame on; closes at a terminal state and at INPUT_REQUIRED, not at
    AUTH_REQUIRED. A new task's stream is its whole log; a duplicate's begins with the task as it stands now. Where the
    agent answers with a Message (``direct_reply``), that is the whole stream."""
    require_streaming(door.agent)
    sent = await accept(ops, ctx, door, request)
    reply = await direct_reply(ops, ctx, door, sent)
    history_length = request.configuration.history_length if request.configuration else None
    stream = TaskStream(LogReader(ops, ctx.caller.tenant, sent.task_id), closes_at_input=True, replayed=sent.replayed)
    try:
        await stream.reader.start()
        if reply is not None:
            stream.show_only(Item(reply.seq, dumps({"message": reply.message})))
        elif sent.replayed or request.message.task_id or history_length is not None:
            await _open_at(ops, ctx.caller.tenant, stream, sent, history_length)
        else:
            page = await stream.reader.read()
            stream.opening = stream.take(page.events if page else [])
    except BaseException:
        stream.close()
        raise
    return stream


async def _open_at(ops: Operations, tenant: str, stream: TaskStream, sent: Sent, history_length: int | None) -> None:
    """The Task as it stood when this message was stored, however much has happened since; a duplicate's as of now."""
    loaded = await tasks.load(ops.db, tenant, sent.task_id)
    if loaded is None:
        raise TaskNotFound
    task, seq = loaded.task, loaded.head.last_seq
    if not sent.replayed and sent.last_seq < seq and sent.last_seq <= MAX_FOLDED:
        page = await events.read(ops.db, tenant, sent.task_id, 0, sent.last_seq)
        if page is not None and len(page.events) == sent.last_seq:
            task = fold((event.kind, cast("JsonObject", loads_trusted(event.body))) for event in page.events)
            seq = sent.last_seq
    stream.open_with(task, seq, {}, durable=True, history_length=history_length)
    stream.go_on_after(seq, loaded.head.last_seq)


async def subscribe_to_task(
    ops: Operations, ctx: CallContext, door: AgentDoor, request: SubscribeToTaskRequest
) -> TaskStream:
    """The Task first, then its events until it is terminal. Raises TaskNotFound, UnsupportedOperation (terminal, or
    the cursor of a resumed stream has seen the end), InvalidParams (malformed cursor), Unavailable."""
    require_streaming(door.agent)
    cursor = _cursor(ctx)
    task_id = parse_task_id(request.id)
    if task_id is None:
        raise TaskNotFound
    stream = TaskStream(LogReader(ops, ctx.caller.tenant, task_id), closes_at_input=False)
    try:
        await stream.reader.start()
        loaded = await tasks.load(ops.db, ctx.caller.tenant, task_id)
        if loaded is None or loaded.head.agent_id != door.agent_id:
            raise TaskNotFound
        seq = loaded.head.last_seq
        if cursor is not None:
            await _resume(stream, loaded, cursor)
            return stream
        if loaded.head.state.is_terminal:
            raise UnsupportedOperation("The task is in a terminal state", metadata=facts_of(loaded.head.state, seq))
        stream.open_with(loaded.task, seq, {}, durable=True)
        stream.go_on_after(seq, seq)
    except BaseException:
        stream.close()
        raise
    return stream


def _cursor(ctx: CallContext) -> Cursor | None:
    """Where to resume; without the extension a Last-Event-ID is ignored."""
    if RESUME_EXTENSION not in ctx.extensions:
        return None
    return latest(ctx.last_event_id, ctx.resume_after, error=InvalidParams)


async def _resume(stream: TaskStream, loaded: LoadedTask, cursor: Cursor) -> None:
    reader = stream.reader
    reader.after = cursor.seq
    page = await reader.read()
    if page is None:
        raise TaskNotFound
    seq = loaded.head.last_seq
    match judge(cursor, reader.incarnation, page):
        case Reset() as reset:
            lost: JsonObject = {"reason": reset.reason, "lostFrom": reset.lost_from, "lostTo": reset.lost_to}
            stream.open_with(loaded.task, seq, {"reset": {**lost, "snapshotSeq": seq}}, durable=True)
            stream.go_on_after(seq, seq)
        case None:
            stream.open_with(loaded.task, seq, {}, durable=False)
            stream.ended = False
            stream.opening += stream.take(page.events)
        case _:
            raise UnsupportedOperation(
                "The task is in a terminal state, and the cursor has seen its end",
                metadata=facts_of(page.state, page.last_seq),
            )
