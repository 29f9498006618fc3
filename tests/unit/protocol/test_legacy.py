"""The older dialect's mapping, where no broker is needed to see it."""

from typing import Any

import pytest

from app.errors import PayloadTooLarge
from app.protocol.events import RESUME_EXTENSION
from app.protocol.legacy import MAX_INPUT_BYTES, Submission, Trail, content, legacy_artifact, legacy_task, user_message
from app.protocol.legacy_events import LegacyLog

Json = dict[str, Any]
ALL = 10**6


def event(seq: int, kind: str = "status", **body: Any) -> Json:
    return {"seq": seq, "kind": kind, "at": f"t{seq}"} | body


def state(seq: int, name: str, text: str | None = None, **metadata: Any) -> Json:
    status: Json = {"state": f"TASK_STATE_{name}"}
    if text is not None:
        status["message"] = {"messageId": f"m{seq}", "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return event(seq, statusUpdate={"status": status} | ({"metadata": metadata} if metadata else {}))


def chunk(seq: int, text: str, *, append: bool = False, last: bool = False) -> Json:
    kind = "artifact.delta" if append else "artifact.replace"
    update = {"artifact": {"artifactId": "a", "parts": [{"text": text}]}, "append": append, "lastChunk": last}
    return event(seq, kind, artifactUpdate=update)


def told(*events: Json) -> list[tuple[str, Any]]:
    """(name, what it is about) of all that is told."""
    log = LegacyLog("t")
    return [
        (name, data.get("to") or data.get("message") or data["artifact"]["content"])
        for each in events
        for name, data in log.tell(each)
    ]


def test_states_of_one_word_are_one_state() -> None:
    events = [state(2, "WORKING"), state(3, "INPUT_REQUIRED"), state(4, "AUTH_REQUIRED"), state(5, "REJECTED")]
    assert told(*events) == [("state", "working"), ("state", "input-required"), ("state", "failed")]
    trail = Trail()
    assert trail.follow(events, ALL) == 5
    assert [entry["state"] for entry in trail.history] == ["working", "input-required", "failed"]


def test_one_event_that_is_a_change_and_a_progress() -> None:
    names = [name for name, _ in LegacyLog("t").tell(state(2, "WORKING", "hello"))]
    assert names == ["state", "progress"]


@pytest.mark.parametrize(("value", "shown"), [(0, 0), (0.5, 0.5), (100, 100), (True, None), ("1", None), (None, None)])
def test_a_progress_is_a_number_or_null(value: object, shown: object) -> None:
    log = LegacyLog("t")
    log.tell(state(2, "WORKING"))
    ((name, data),) = log.tell(state(3, "WORKING", "x", progress=value))
    assert (name, data) == ("progress", {"taskId": "t", "message": "x", "progress": shown, "timestamp": "t3"})


def test_a_number_without_a_message_is_a_progress_and_a_bare_status_none() -> None:
    log = LegacyLog("t")
    log.tell(state(2, "WORKING"))
    ((_, data),) = log.tell(state(3, "WORKING", progress=7))
    assert (data["message"], data["progress"]) == ("", 7)
    assert log.tell(state(4, "WORKING", other=7)) == []


def test_a_merged_artifact_is_told_whole() -> None:
    merged = chunk(9, "A:3", last=True) | {"kind": "artifact.merged"}
    assert told(chunk(3, "A:"), merged) == [("artifact", "A:"), ("artifact", "A:3")]


def test_replacing_begins_anew() -> None:
    events = [chunk(3, "1"), chunk(4, "2", append=True), chunk(5, "3"), chunk(6, "4", append=True)]
    assert told(*events, state(7, "COMPLETED")) == [
        ("artifact", "1"),
        ("artifact", "3"),
        ("artifact", "34"),
        ("state", "completed"),
    ]


def test_a_log_that_begins_later_tells_what_the_reset_shows() -> None:
    task = {
        "id": "t",
        "status": {"state": "TASK_STATE_WORKING", "timestamp": "t7"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "old"}]}],
    }
    reset = {"seq": 8, "kind": "reset", "reason": "retention", "snapshotSeq": 8, "task": task}
    assert told(reset, chunk(9, "+", append=True, last=True), state(10, "COMPLETED")) == [
        ("artifact", "old"),
        ("state", "working"),
        ("artifact", "old+"),
        ("state", "completed"),
    ]
    trail = Trail()
    trail.follow([reset], ALL)
    assert (trail.created_at, trail.history) == ("t7", [{"state": "working", "timestamp": "t7"}])


def test_a_trail_ends_where_the_task_was_read() -> None:
    trail = Trail()
    assert trail.follow([state(2, "WORKING"), state(3, "COMPLETED")], last_seq=2) == 2
    assert (trail.updated_at, len(trail.history)) == ("t2", 1)


def test_what_the_trail_did_not_see_is_as_old_as_the_task() -> None:
    """And the state at the end of a history is the task's."""
    task = {
        "id": "t",
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "t9"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "x"}]}],
        "metadata": {RESUME_EXTENSION: {"lastSeq": 9}},
    }
    trail = Trail()
    trail.follow([state(2, "WORKING")], ALL)
    shown = legacy_task(task, trail)
    assert [one["createdAt"] for one in shown["artifacts"]] == [shown["updatedAt"]] == ["t9"]
    assert shown["history"][-1] == {"state": "completed", "timestamp": "t9"}


@pytest.mark.parametrize(
    ("parts", "shown", "media_type"),
    [
        ([{"text": "a"}, {"data": 1}, {"text": "b"}], "ab", "text/plain"),
        ([{"data": {"k": 1}}], {"k": 1}, "application/json"),
        ([{"data": 1}, {"data": None}], [1, None], "application/json"),
        ([{"data": None}], None, "application/json"),
        ([{"url": "https://x.test/f", "mediaType": "image/png"}], "https://x.test/f", "image/png"),
        ([{"raw": "AAEC"}], "AAEC", "application/octet-stream"),
        ([{"text": "a", "mediaType": "text/html"}], "a", "text/html"),
    ],
)
def test_the_content_of_parts(parts: list[Json], shown: object, media_type: str) -> None:
    assert content(parts) == shown
    assert legacy_artifact({"artifactId": "a", "parts": parts}, "t")["mimeType"] == media_type


@pytest.mark.parametrize("kind", ["Code", "", 7, None, ["code"], {}])
def test_a_type_that_is_none_of_the_five_is_a_report(kind: object) -> None:
    assert legacy_artifact({"artifactId": "a", "parts": [], "metadata": {"type": kind}}, "t")["type"] == "report"


def test_the_limit_counts_bytes_of_input_and_metadata() -> None:
    fits = Submission(skill="s", input="x" * (MAX_INPUT_BYTES - len('""{}')))
    assert user_message(fits, None).parts[0].text == fits.input
    with pytest.raises(PayloadTooLarge):
        user_message(Submission(skill="s", input=f"{fits.input}x"), None)
    with pytest.raises(PayloadTooLarge):
        user_message(Submission(skill="s", input=fits.input, metadata={"a": 1}), None)
