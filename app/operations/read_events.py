"""The native reader's side of a task's log: a page, or a replay that goes on live. Called by ``native.readers``."""

from dataclasses import dataclass

from app.auth.caller import Caller
from app.errors import NotFound
from app.ledger import tasks
from app.ledger.rows import Event
from app.operations.answers import parse_task_id
from app.operations.cursors import Cursor, Reset, judge
from app.operations.deps import Operations
from app.operations.event_views import events_json, page_json, reset_json
from app.operations.log_reader import BATCH_EVENTS, LogReader
from app.protocol.events import EventKind


@dataclass(frozen=True, slots=True)
class EventFrame:
    """One event of the native stream: its seq (the id), its kind and its JSON."""

    seq: int
    kind: str
    body: str


class EventStream:
    """A replay after a cursor: send ``opening``, then what ``next`` gives, until ``ended``. ``close`` must be called.

    ``until`` ends the stream at that seq (follow=false), or never.
    """

    def __init__(self, reader: LogReader, after: int) -> None:
        self.reader = reader
        self.opening: list[EventFrame] = []
        self.ended = False
        self.until: int | None = None
        self._previous = after

    def close(self) -> None:
        self.reader.close()

    async def next(self, timeout: float) -> list[EventFrame]:
        """What comes next within ``timeout`` seconds; empty when nothing did. Sets ``ended`` with the last frames."""
        return self.take(await self.reader.next(timeout))

    def take(self, events: list[Event]) -> list[EventFrame]:
        """The frames of events that the reader has read."""
        if self.until is not None:
            events = [event for event in events if event.seq <= self.until]
        printed = events_json(events, self.reader.incarnation, self._previous)
        frames = [EventFrame(event.seq, event.kind, body) for event, body in zip(events, printed, strict=True)]
        if events:
            self._previous = events[-1].seq
        self._judge_end()
        return frames

    def open_with(self, frame: EventFrame) -> None:
        """Begin with a frame that stands for everything up to its seq."""
        self.opening = [frame]
        self._previous = self.reader.after = self.reader.last_seq = frame.seq
        self._judge_end()

    def _judge_end(self) -> None:
        self.ended = self.reader.ended or (self.until is not None and self._previous >= self.until)


async def open_stream(
    ops: Operations, caller: Caller, task_id: str, cursor: Cursor | None, *, follow: bool
) -> EventStream | None:
    """The events after the cursor, the first ones read already; None when the cursor has seen the terminal event.

    Raises NotFound, Unavailable.
    """
    cursor = cursor or Cursor(0)
    reader = _reader(ops, caller, task_id, cursor)
    stream = EventStream(reader, cursor.seq)
    try:
        await reader.start()
        page = await reader.read(BATCH_EVENTS)
        if page is None:
            raise NotFound
        verdict = judge(cursor, reader.incarnation, page)
        if isinstance(verdict, Reset):
            frame, terminal = await _reset(ops, caller, reader, verdict, cursor)
            stream.until = None if follow else frame.seq
            stream.open_with(frame)
            stream.ended |= terminal
            return stream
        if verdict is not None:
            reader.close()
            return None
        stream.until = None if follow else page.last_seq
        stream.opening = stream.take(page.events)
    except BaseException:
        reader.close()
        raise
    return stream


async def read_page(ops: Operations, caller: Caller, task_id: str, cursor: Cursor | None, limit: int) -> str:
    """``{"events", "lastSeq", "minSeq", "terminalSeq", "nextAfter"}`` as JSON text. Raises NotFound, Unavailable."""
    cursor = cursor or Cursor(0)
    reader = _reader(ops, caller, task_id, cursor)
    try:
        await reader.start()
        page = await reader.read(limit)
        if page is None:
            raise NotFound
        verdict = judge(cursor, reader.incarnation, page)
        if isinstance(verdict, Reset):
            frame, _ = await _reset(ops, caller, reader, verdict, cursor)
            return page_json([frame.body], page, frame.seq)
        next_after = page.events[-1].seq if page.events else cursor.seq
        return page_json(events_json(page.events, reader.incarnation, cursor.seq), page, next_after)
    finally:
        reader.close()


def _reader(ops: Operations, caller: Caller, task_id: str, cursor: Cursor) -> LogReader:
    parsed = parse_task_id(task_id)
    if parsed is None:
        raise NotFound
    return LogReader(ops, caller.tenant, parsed, cursor.seq)


async def _reset(
    ops: Operations, caller: Caller, reader: LogReader, reset: Reset, cursor: Cursor
) -> tuple[EventFrame, bool]:
    """The reset frame, and whether the task it shows is terminal."""
    loaded = await tasks.load(ops.db, caller.tenant, reader.task_id)
    if loaded is None:
        raise NotFound
    body = reset_json(reset, loaded, reader.incarnation, cursor.seq)
    return EventFrame(loaded.head.last_seq, EventKind.RESET, body), loaded.head.state.is_terminal
