"""Task states and event kinds: the one definition that ledger and doors share."""

import pytest

from app.protocol.events import A2A_HIDDEN, EventKind
from app.protocol.states import INTERRUPTED, TERMINAL, TaskState


@pytest.mark.parametrize("state", TaskState)
def test_a_state_is_parsed_from_its_name_and_its_number(state: TaskState) -> None:
    assert TaskState.parse(state.wire) is state
    assert TaskState.parse(int(state)) is state


@pytest.mark.parametrize("value", ["WORKING", "task_state_working", "2", 9, -1, True, None, 2.0, []])
def test_anything_else_is_not_a_state(value: object) -> None:
    with pytest.raises(ValueError, match="not a"):
        TaskState.parse(value)


def test_terminal_and_interrupted_are_disjoint_and_complete() -> None:
    assert {state.name for state in TERMINAL} == {"COMPLETED", "FAILED", "CANCELED", "REJECTED"}
    assert {state.name for state in INTERRUPTED} == {"INPUT_REQUIRED", "AUTH_REQUIRED"}
    assert [state.name for state in TaskState if state not in TERMINAL | INTERRUPTED] == [
        "UNSPECIFIED",
        "SUBMITTED",
        "WORKING",
    ]


def test_kinds_are_the_words_of_the_native_api() -> None:
    assert {kind.value for kind in EventKind} == {
        "task.submitted",
        "message.user",
        "status",
        "artifact.delta",
        "artifact.replace",
        "artifact.merged",
        "action.required",
        "action.answered",
        "turn.started",
        "turn.ended",
        "cancel.requested",
        "effect.changed",
        "reset",
    }
    assert {"message.user", "turn.started", "action.answered", "effect.changed"} == A2A_HIDDEN
