"""Cursors and what a reader is told when one cannot be served (resume-contract.md, Transport 2 and 5)."""

import pytest

from app.errors import InvalidArgument, InvalidParams
from app.ledger.rows import EventPage
from app.operations.cursors import AT_END, Cursor, Reset, judge, latest, parse_cursor
from app.protocol.states import TaskState


def page(last: int, first: int = 1, terminal: int | None = None) -> EventPage:
    return EventPage([], last, first, terminal, TaskState.WORKING)


@pytest.mark.parametrize(
    ("text", "cursor"),
    [("0", Cursor(0)), ("45", Cursor(45)), ("1.45", Cursor(45, 1)), (f"1.{2**63 - 1}", Cursor(2**63 - 1, 1))],
)
def test_cursors(text: str, cursor: Cursor) -> None:
    assert parse_cursor(text) == cursor


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", "1.", ".1", "1.-1", "1.2.3", "+1", "1e3", "٣", "1,2", "0x1", str(2**63), f"{2**63}.1", "9" * 40],
)
def test_malformed_cursors(text: str) -> None:
    with pytest.raises(InvalidParams):
        parse_cursor(text, InvalidParams)


def test_the_greater_of_several_counts_and_empty_ones_do_not() -> None:
    assert latest(None, "", "  ") is None
    assert latest("1.9", "4") == Cursor(9, 1)
    assert latest("4", "1.9") == Cursor(9, 1)
    with pytest.raises(InvalidArgument):
        latest("9", "x")


@pytest.mark.parametrize(
    ("cursor", "log", "verdict"),
    [
        (Cursor(4, 1), page(10), None),
        (Cursor(10, 1), page(10), None),
        (Cursor(0), page(10), None),
        (Cursor(99, 1), page(20), Reset("cursor_ahead", 21, 99)),
        (Cursor(11, 1), page(90, first=71), Reset("retention", 12, 70)),
        (Cursor(70, 1), page(90, first=71), None),
        (Cursor(0), page(90, first=71), Reset("retention", 1, 70)),
        (Cursor(50, 2), page(90), Reset("incarnation", 1, 50)),
        (Cursor(50, 2), page(30, terminal=30), Reset("incarnation", 1, 50)),
        (Cursor(28, 1), page(30, terminal=30), None),
        (Cursor(30, 1), page(30, terminal=30), AT_END),
        (Cursor(99), page(30, terminal=30), AT_END),
    ],
)
def test_verdicts(cursor: Cursor, log: EventPage, verdict: Reset | str | None) -> None:
    assert judge(cursor, 1, log) == verdict
