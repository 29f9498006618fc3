"""How the command line reads a stream: the frames of resume-contract.md off the wire, and what they say."""

from collections.abc import AsyncIterator

import pytest

from app.cli.errors import CliError
from app.cli.frames import RETRY, Frame, read_frames
from app.cli.render import event_summary, parse_state
from app.protocol.states import TaskState

WIRE = """: ok
retry: 2000
id: 1.45
event: artifact.delta
data: {"seq":45,"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"x\\u2028y"}]},"append":true}}

: hb
id: 1.46
event: status
data: {"seq":46,"attempt":2,
data: "statusUpdate":{"status":{"state":"TASK_STATE_WORKING"}}}

id: 1.90
event: reset
data: {"reason":"retention","lostFrom":12,"lostTo":70,"snapshotSeq":90,"task":{"status":{"state":"TASK_STATE_WORKING"}}}

id: 1.91
event: status
data: {"cut off
"""


async def lines(text: str) -> AsyncIterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        yield line


async def test_frames_come_whole_and_a_cut_one_does_not_come() -> None:
    frames = [frame async for frame in read_frames(lines(WIRE))]
    assert [(frame.kind, frame.id, frame.seq) for frame in frames] == [
        (RETRY, "", 0),
        ("artifact.delta", "1.45", 45),
        ("status", "1.46", 46),
        ("reset", "1.90", 90),
    ]
    assert frames[0].data == {"milliseconds": 2000}


async def test_a_frame_is_summed_up_on_one_safe_line() -> None:
    said = [event_summary(frame) async for frame in read_frames(lines(WIRE)) if frame.kind != RETRY]
    assert said[0] == 'a += "x\\u2028y"'
    assert said[1] == "WORKING  attempt 2"
    assert "events 12..70 are not kept" in said[2]
    evil = Frame("1.1", "message.user", {"seq": 1, "message": {"parts": [{"text": "\x1b[2Jgone\n2  status"}]}})
    assert "\x1b" not in event_summary(evil)
    assert "\n" not in event_summary(evil)


async def test_something_else_than_json_is_not_a_broker() -> None:
    with pytest.raises(CliError, match="not JSON"):
        [frame async for frame in read_frames(lines("data: <html>\n\n"))]


@pytest.mark.parametrize("text", ["completed", "COMPLETED", "task_state_completed", " TASK_STATE_COMPLETED "])
def test_a_state_may_be_written_as_people_do(text: str) -> None:
    assert parse_state(text) == TaskState.COMPLETED.wire
    assert parse_state("input-required") == TaskState.INPUT_REQUIRED.wire


def test_what_is_no_state_is_refused() -> None:
    for text in ("", "done", "6"):
        with pytest.raises(ValueError, match="not a task state"):
            parse_state(text)
