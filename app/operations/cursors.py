"""Cursors of one task's log, ``<incarnation>.<seq>`` or a bare seq, and what a reader must be told when one cannot be
served (resume-contract.md, Transport 2 and 5). Called by the native stream and by resumed A2A subscriptions."""

import re
from dataclasses import dataclass

from app.errors import InvalidArgument, WaystationError
from app.ledger.rows import EventPage

_CURSOR = re.compile(r"(?:(\d{1,19})\.)?(\d{1,19})", re.ASCII)
_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last event a reader has seen; ``incarnation`` None matches any."""

    seq: int
    incarnation: int | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """The reader cannot be given exactly what follows its cursor: it starts again from a snapshot.

    ``reason``: ``retention``, ``cursor_ahead`` or ``incarnation``. ``lost_from`` and ``lost_to`` are the seqs that are
    gone, or that never were in this log.
    """

    reason: str
    lost_from: int
    lost_to: int


AT_END = "at_end"
"""The cursor stands at or past the terminal event: nothing will ever follow."""


def parse_cursor(text: str, error: type[WaystationError] = InvalidArgument) -> Cursor:
    """Raises ``error`` for anything but ``<incarnation>.<seq>`` or ``<seq>``, each below 2^63."""
    match = _CURSOR.fullmatch(text.strip())
    incarnation, seq = (int(match[1]) if match[1] else None, int(match[2])) if match else (None, -1)
    if not 0 <= seq <= _MAX or (incarnation or 0) > _MAX:
        raise error("The cursor is malformed: it must be <incarnation>.<seq> or <seq>")
    return Cursor(seq, incarnation)


def latest(*texts: str | None, error: type[WaystationError] = InvalidArgument) -> Cursor | None:
    """The greater of the cursors given; an empty one counts as none."""
    cursors = [parse_cursor(text, error) for text in texts if text and text.strip()]
    return max(cursors, key=lambda cursor: cursor.seq, default=None)


def judge(cursor: Cursor, incarnation: int, page: EventPage) -> Reset | str | None:
    """None: the events after the cursor can be given. Else a Reset, or AT_END. ``page`` has the log's bounds."""
    if cursor.incarnation not in (None, incarnation):
        return Reset("incarnation", 1, cursor.seq)
    if page.terminal_seq is not None and cursor.seq >= page.terminal_seq:
        return AT_END
    if cursor.seq > page.last_seq:
        return Reset("cursor_ahead", page.last_seq + 1, cursor.seq)
    if cursor.seq < page.min_seq - 1:
        return Reset("retention", cursor.seq + 1, page.min_seq - 1)
    return None
