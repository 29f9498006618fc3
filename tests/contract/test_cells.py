"""That the table of scenarios is whole: every reason that an operation can be refused with has a row, through every
door, and so has every operation's success. A new operation, error or door fails here until it is decided."""

import re
from collections import Counter
from pathlib import Path

import pytest

from app import errors
from app.errors import A2AError, WaystationError
from app.operations.registry import BY_NAME
from tests.contract.every_door import DOORS
from tests.contract.scenarios.elsewhere import CANNOT, ELSEWHERE
from tests.contract.scenarios.limits import LIMITS, why_not
from tests.contract.scenarios.table import TABLE

ROOT = Path(__file__).parents[2]
REASONS = {
    kind.reason
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, WaystationError) and kind not in (WaystationError, A2AError)
}
CELLS = [(operation, reason) for operation in BY_NAME for reason in sorted(REASONS)]
SHOWN = {(row.operation, row.reason) for row in TABLE}


@pytest.mark.parametrize("operation", BY_NAME)
def test_every_operation_has_rows_for_its_outcomes(operation: str) -> None:
    assert (operation, None) in SHOWN


@pytest.mark.parametrize(("operation", "reason"), CELLS)
def test_every_cell_has_a_row_or_a_reason_why_not(operation: str, reason: str) -> None:
    shown = (operation, reason) in SHOWN
    excused = reason in ELSEWHERE or operation in CANNOT.get(reason, {})
    assert shown or excused, f"{operation} refused with {reason}: no scenario"
    assert not (shown and excused), "has a row, so it needs no excuse"


def test_what_is_tested_elsewhere_is_there() -> None:
    for reason, place in ELSEWHERE.items():
        assert reason in REASONS
        path, _, name = place.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), place


def test_no_excuse_is_left_over() -> None:
    assert {*CANNOT} <= REASONS
    assert {operation for excused in CANNOT.values() for operation in excused} <= set(BY_NAME)
    assert set(LIMITS) <= set(DOORS)
    for limits in LIMITS.values():
        for limit in limits:
            assert any(limit.excludes(row) for row in TABLE), limit
            named = {row.name for row in TABLE if not limit.operations or row.operation in limit.operations}
            assert {*limit.rows, *limit.all_but} <= named, limit


def test_rows_are_told_apart_by_operation_and_name() -> None:
    assert [name for name, count in Counter((row.operation, row.name) for row in TABLE).items() if count > 1] == []


@pytest.mark.parametrize("door", DOORS)
def test_every_door_is_tried(door: str) -> None:
    """What a door leaves out is a minority, but for the dialect that has four calls."""
    tried = [row for row in TABLE if why_not(row, door) is None]
    print(f"{door}: {len(tried)} of {len(TABLE)} rows")
    assert len(tried) > len(TABLE) * (0.1 if door == "legacy" else 0.7)
