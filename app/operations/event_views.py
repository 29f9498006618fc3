"""Events as the native API prints them (native-api.md, Readers). Stored JSON is spliced in as text, never parsed."""

from collections.abc import Sequence

from app.ledger.rows import Event, EventPage, JsonObject, LoadedTask
from app.operations.cursors import Reset
from app.protocol.events import EventKind
from app.protocol.models import format_timestamp
from app.protocol.strict_json import dumps, escape_line_separators


def event_json(event: Event, incarnation: int, previous: int) -> str:
    """One event. ``previous`` is the seq of the frame before it on this connection, or the cursor: ``covers`` begins
    after it."""
    head = (
        f'{{"seq":{event.seq},"id":"{incarnation}.{event.seq}","covers":[{previous + 1},{event.seq}],'
        f'"kind":"{event.kind}","at":"{format_timestamp(event.at)}","turn":{event.turn},"attempt":{event.attempt},'
        f'"actor":{{"kind":"{event.actor_kind}","id":{dumps(event.actor_id)}}}'
    )
    body = escape_line_separators(event.body)
    return head + "}" if body == "{}" else f"{head},{body[1:]}"


def events_json(events: Sequence[Event], incarnation: int, after: int) -> list[str]:
    """Events in a row, the first after the cursor ``after``."""
    previous = [after, *(event.seq for event in events)]
    return [event_json(event, incarnation, before) for event, before in zip(events, previous, strict=False)]


def reset_json(reset: Reset, loaded: LoadedTask, incarnation: int, cursor: int) -> str:
    """The explicit break in a replay: the Task as of ``snapshotSeq``, whose seq is the frame's id."""
    seq = loaded.head.last_seq
    return dumps(
        {
            "seq": seq,
            "id": f"{incarnation}.{seq}",
            "covers": [cursor + 1 if cursor < seq else 1, seq],
            "kind": EventKind.RESET,
            "reason": reset.reason,
            "lostFrom": reset.lost_from,
            "lostTo": reset.lost_to,
            "snapshotSeq": seq,
            "task": loaded.task,
        }
    )


def page_json(events: Sequence[str], page: EventPage, next_after: int) -> str:
    """A JSON page of events that are printed already."""
    bounds: JsonObject = {
        "lastSeq": page.last_seq,
        "minSeq": page.min_seq,
        "terminalSeq": page.terminal_seq,
        "nextAfter": next_after,
    }
    return f'{{"events":[{",".join(events)}],{dumps(bounds)[1:]}'
