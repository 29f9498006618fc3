"""The fold, by example (resume-contract.md, History) and by property."""

import copy
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocol.fold import fold, view

Event = tuple[str, dict[str, Any]]


def message(message_id: str, *, role: str = "ROLE_USER", text: str = "…") -> dict[str, Any]:
    return {"messageId": message_id, "role": role, "parts": [{"text": text}]}


def submitted(first: str = "u1", **task: Any) -> Event:
    return "task.submitted", {
        "task": {
            "id": "t",
            "contextId": "c",
            "status": {"state": "TASK_STATE_SUBMITTED"},
            "history": [message(first)],
            **task,
        }
    }


def user(message_id: str) -> Event:
    return "message.user", {"message": message(message_id)}


def status(state: str, said: str | None = None, *, kind: str = "status", text: str = "…", **update: Any) -> Event:
    new: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if said is not None:
        new["message"] = message(said, role="ROLE_AGENT", text=text)
    return kind, {"statusUpdate": {"taskId": "t", "contextId": "c", "status": new, **update}}


def chunk(artifact_id: str, *texts: str, append: bool | None = None, kind: str = "", **artifact: Any) -> Event:
    update: dict[str, Any] = {
        "artifact": {"artifactId": artifact_id, "parts": [{"text": t} for t in texts], **artifact}
    }
    if append is not None:
        update["append"] = append
    return kind or ("artifact.delta" if append else "artifact.replace"), {"artifactUpdate": update}


def history(task: dict[str, Any]) -> list[str]:
    return [item["messageId"] for item in task.get("history", [])]


def texts(task: dict[str, Any]) -> dict[str, str]:
    return {a["artifactId"]: "".join(p["text"] for p in a["parts"]) for a in task.get("artifacts", [])}


# --- history ---------------------------------------------------------------------------------------------------------


def test_a_submitted_task_is_the_task() -> None:
    kind, body = submitted()
    assert fold([(kind, body)]) == body["task"]


def test_history_has_the_messages_in_the_order_they_came() -> None:
    task = fold(
        [submitted("u1"), status("INPUT_REQUIRED", "a1"), user("u2"), status("WORKING"), status("COMPLETED", "a2")]
    )
    assert history(task) == ["u1", "a1", "u2"]
    assert task["status"]["message"]["messageId"] == "a2"


def test_the_current_status_message_stands_in_status_only() -> None:
    task = fold([submitted("u1"), status("WORKING", "a1")])
    assert history(task) == ["u1"]
    task = fold([status("WORKING")], task)
    assert history(task) == ["u1", "a1"]
    assert task["status"] == {"state": "TASK_STATE_WORKING"}


def test_a_client_message_moves_what_the_agent_said_and_changes_nothing_else_of_status() -> None:
    asked = status("INPUT_REQUIRED", "a1")
    asked[1]["statusUpdate"]["status"]["timestamp"] = "2026-01-01T00:00:00.000Z"
    task = fold([submitted("u1"), asked, user("u2")])
    assert history(task) == ["u1", "a1", "u2"]
    assert task["status"] == {"state": "TASK_STATE_INPUT_REQUIRED", "timestamp": "2026-01-01T00:00:00.000Z"}


def test_an_agents_message_stands_once_however_often_it_came() -> None:
    task = fold([submitted("u1"), status("WORKING", "a1"), status("WORKING", "a1", text="more"), user("u2")])
    assert history(task) == ["u1", "a1", "u2"]
    assert task["history"][1]["parts"] == [{"text": "more"}]


def test_a_clients_message_is_never_lost_to_an_id_used_before() -> None:
    """docs/decisions/reused-message-ids.md: by another client, by a client of a key_only agent, or by the agent."""
    task = fold([submitted("1"), user("1"), status("WORKING", "1"), user("1"), status("COMPLETED", "1")])
    assert [(item["messageId"], item["role"]) for item in task["history"]] == [("1", "ROLE_USER")] * 3
    assert task["status"]["message"]["role"] == "ROLE_AGENT"


def test_a_message_said_again_later_is_the_current_one() -> None:
    task = fold([submitted("u1"), status("WORKING", "a1"), status("WORKING", "a2"), status("COMPLETED", "a1")])
    assert history(task) == ["u1", "a2"]
    assert task["status"]["message"]["messageId"] == "a1"


@pytest.mark.parametrize("kind", ["status", "action.required", "turn.ended", "cancel.requested"])
def test_every_kind_with_a_status_update_sets_the_status(kind: str) -> None:
    task = fold([submitted(), status("WORKING", "a1", kind=kind)])
    assert task["status"]["message"]["messageId"] == "a1"


@pytest.mark.parametrize("kind", ["turn.started", "action.answered", "effect.changed", "of.a.later.version"])
def test_other_kinds_leave_the_task_alone(kind: str) -> None:
    assert fold([submitted(), (kind, {"anything": 1})]) == fold([submitted()])


def test_metadata_of_status_updates_is_merged_shallowly() -> None:
    task = fold(
        [
            submitted(metadata={"a": {"x": 1}, "b": 1}),
            status("WORKING", metadata={"a": {"y": 2}}),
            status("WORKING", metadata={"c": 3}),
            status("WORKING"),
        ]
    )
    assert task["metadata"] == {"a": {"y": 2}, "b": 1, "c": 3}


def test_a_task_begins_with_its_submission() -> None:
    with pytest.raises(ValueError, match=r"task\.submitted"):
        fold([status("WORKING")])
    with pytest.raises(ValueError, match="at least one"):
        fold([])


# --- artifacts -------------------------------------------------------------------------------------------------------


def test_the_stock_lookup() -> None:
    events = [submitted(), chunk("stock", "A:", append=False), chunk("stock", "3", append=True)]
    assert texts(fold(events)) == {"stock": "A:3"}
    assert texts(fold([*events, chunk("stock", "B", append=False)])) == {"stock": "B"}
    assert texts(fold([*events, chunk("stock", "C")])) == {"stock": "C"}


def test_a_merged_row_replaces_what_its_deltas_built() -> None:
    prefix = [submitted(), chunk("x", "A:"), chunk("x", "3", append=True)]
    merged = chunk("x", "A:", "3", append=False, kind="artifact.merged")
    assert fold([*prefix, merged]) == fold(prefix) == fold([submitted(), merged])


def test_artifacts_keep_their_places() -> None:
    task = fold([submitted(), chunk("x", "1"), chunk("y", "1"), chunk("x", "2"), chunk("y", "2", append=True)])
    assert list(texts(task).items()) == [("x", "2"), ("y", "12")]


def test_append_merges_metadata_and_takes_over_what_is_given() -> None:
    task = fold(
        [
            submitted(),
            chunk("x", "1", name="one", description="first", metadata={"a": 1, "b": {"x": 1}}, extensions=["e1"]),
            chunk("x", "2", append=True, name="two", metadata={"b": {"y": 2}, "c": 3}),
            chunk("x", "3", append=True, extensions=["e2"]),
        ]
    )
    assert task["artifacts"] == [
        {
            "artifactId": "x",
            "parts": [{"text": "1"}, {"text": "2"}, {"text": "3"}],
            "name": "two",
            "description": "first",
            "metadata": {"a": 1, "b": {"y": 2}, "c": 3},
            "extensions": ["e2"],
        }
    ]


def test_replace_takes_nothing_over() -> None:
    task = fold([submitted(), chunk("x", "1", name="one", metadata={"a": 1}), chunk("x", "2")])
    assert task["artifacts"] == [{"artifactId": "x", "parts": [{"text": "2"}]}]


# --- view ------------------------------------------------------------------------------------------------------------


def a_long_task() -> dict[str, Any]:
    return fold([submitted("u1"), user("u2"), user("u3"), chunk("x", "1")])


@pytest.mark.parametrize(
    ("length", "shown"),
    [(None, ["u1", "u2", "u3"]), (1, ["u3"]), (2, ["u2", "u3"]), (3, ["u1", "u2", "u3"]), (9, ["u1", "u2", "u3"])],
)
def test_history_length_shows_the_most_recent(length: int | None, shown: list[str]) -> None:
    assert history(view(a_long_task(), history_length=length)) == shown


def test_history_length_zero_omits_the_key() -> None:
    assert "history" not in view(a_long_task(), history_length=0)


def test_artifacts_are_shown_absent_or_as_an_empty_list() -> None:
    assert texts(view(a_long_task())) == {"x": "1"}
    assert "artifacts" not in view(a_long_task(), include_artifacts=False)
    assert "artifacts" not in view(fold([submitted()]))
    assert view(fold([submitted()]), empty_artifacts=True)["artifacts"] == []


# --- properties ------------------------------------------------------------------------------------------------------

_ids = st.sampled_from(["u1", "u2", "a1", "a2", "a3"])
_metadata = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 3), max_size=2)
_statuses = st.builds(
    lambda kind, state, said, metadata: status(state, said, kind=kind, metadata=metadata),
    st.sampled_from(["status", "action.required", "turn.ended", "cancel.requested"]),
    st.sampled_from(["WORKING", "INPUT_REQUIRED", "COMPLETED"]),
    st.none() | _ids,
    _metadata,
)
_chunks = st.builds(
    lambda artifact_id, text, append, metadata: chunk(artifact_id, text, append=append, metadata=metadata),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from([None, False, True]),
    _metadata,
)
_events = st.lists(st.one_of(_statuses, _chunks, _ids.map(user), st.just(("turn.started", {}))), max_size=12)


@given(rest=_events, cut=st.integers(0, 12))
def test_a_snapshot_and_the_rest_give_the_whole(rest: list[Event], cut: int) -> None:
    events = [submitted(), *rest]
    whole = fold(events)
    assert fold(events[cut + 1 :], fold(events[: cut + 1])) == whole
    task = None
    for event in events:
        task = fold([event], task)
    assert task == whole


@given(rest=_events)
def test_each_message_stands_once_and_none_is_lost(rest: list[Event]) -> None:
    task = fold([submitted("u1"), *rest])
    shown = [*task["history"], *([task["status"]["message"]] if "message" in task["status"] else [])]
    asked = ["u1", *(body["message"]["messageId"] for _, body in rest if "message" in body)]
    statuses = [body["statusUpdate"]["status"] for _, body in rest if "statusUpdate" in body]
    assert [item["messageId"] for item in shown if item["role"] == "ROLE_USER"] == asked
    said = [item["messageId"] for item in shown if item["role"] == "ROLE_AGENT"]
    assert len(said) == len(set(said))
    assert set(said) == {status["message"]["messageId"] for status in statuses if "message" in status}


@given(rest=_events, length=st.none() | st.integers(0, 4), include=st.booleans())
def test_neither_bodies_nor_viewed_tasks_are_changed(rest: list[Event], length: int | None, include: bool) -> None:
    events = [submitted(), chunk("x", "0"), *rest]
    before = copy.deepcopy(events)
    task = fold(events)
    assert events == before
    again = copy.deepcopy(task)
    view(task, history_length=length, include_artifacts=include)
    assert task == again


@given(rest=_events)
def test_the_last_replace_and_what_follows_make_an_artifact(rest: list[Event]) -> None:
    expected: dict[str, str] = {}
    for _, body in rest:
        if update := body.get("artifactUpdate"):
            before = expected.get(update["artifact"]["artifactId"], "") if update.get("append") else ""
            expected[update["artifact"]["artifactId"]] = before + update["artifact"]["parts"][0]["text"]
    assert texts(fold([submitted(), *rest])) == expected


def test_a_long_log_is_folded_in_linear_time() -> None:
    def seconds(count: int) -> float:
        events = [submitted(), *(status("WORKING", f"a{n}") for n in range(count))]
        best = min(_timed(events) for _ in range(3))
        assert len(fold(events)["history"]) == count
        return best

    assert seconds(20_000) < 40 * seconds(2_000)


def _timed(events: list[Event]) -> float:
    started = time.process_time()
    fold(events)
    return time.process_time() - started
