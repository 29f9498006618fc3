"""The two acts of the demo. Each breaks something on purpose, then checks that nothing was lost and says so.

A check that fails ends the demo with what was expected and what was found.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from app.cli.broker import Broker, segment
from app.cli.demo.screen import Screen
from app.cli.demo.stage import Stage
from app.cli.errors import CliError
from app.cli.follow import Follower, is_terminal, state_of
from app.cli.frames import RETRY, Frame, read_frames
from app.cli.output import JsonObject
from app.cli.render import parts_text
from app.cli.send import build_message, send_message
from app.protocol.states import TaskState

COUNT = 10
CUT_AFTER_SEQ = 6
MISSED_EVENTS = 3
KILL_AFTER_CHUNKS = 3
PATIENCE_SECONDS = 30
POLL_SECONDS = 0.05
ANSWER = " ".join(str(number) for number in range(1, COUNT + 1))
PAYLOADS = ("task", "message", "statusUpdate", "artifactUpdate")


async def cut_and_resume(stage: Stage, screen: Screen) -> None:
    """Send a task, stream it, cut the stream in the middle, resume by seq."""
    screen.act("Send, work, stream; cut the stream and resume by seq")
    async with stage.broker() as broker:
        task_id = await _send(broker, stage, screen)
        before = [frame async for frame in _read(broker, task_id, "", lambda frame: frame.seq >= CUT_AFTER_SEQ, screen)]
        last = before[-1]
        screen.blow(f"stream cut after seq {last.seq}: nobody is listening, the worker goes on")
        end_of_gap = await _wait_for_seq(broker, task_id, last.seq + MISSED_EVENTS)
        screen.say(f"resume with  Last-Event-ID: {last.id}   (↻ = missed while cut, then live)")
        after = [frame async for frame in _read(broker, task_id, last.id, is_terminal, screen, replayed=end_of_gap)]
        missed = [frame.seq for frame in after if frame.seq <= end_of_gap]
        _require(missed == list(range(last.seq + 1, end_of_gap + 1)), f"the cut events, not {missed}")
        screen.proof(
            f"cut: events {last.seq + 1}..{end_of_gap}; replayed: {missed[0]}..{missed[-1]}: exactly the missing ones"
        )
        await _check_log(broker, task_id, [*before, *after], screen)


async def kill_and_survive(stage: Stage, screen: Screen) -> None:
    """Send a task, kill gateway and worker with -9 in the middle of it, start them again, and see the task complete."""
    screen.act("kill -9 the gateway and the worker in the middle of a task")
    async with stage.broker() as broker:
        task_id = await _send(broker, stage, screen)
        frames: list[Frame] = []
        chunks = 0
        async for frame in Follower(broker, task_id, "", lambda text: screen.say(f"↻ {text}")).events():
            screen.event(frame)
            frames.append(frame)
            chunks += "artifactUpdate" in frame.data
            if chunks == KILL_AFTER_CHUNKS and stage.restarts == 0:
                await _kill_and_restart(stage, screen)
        view = await broker.call("GET", f"/v1/tasks/{segment(task_id)}")
        _require(int(view["attempt"]) > 1, f"a second attempt, not {view['attempt']}")
        screen.proof(f"the same task completed in attempt {view['attempt']}; the dead worker's lease expired by itself")
        await _check_log(broker, task_id, frames, screen)


async def _kill_and_restart(stage: Stage, screen: Screen) -> None:
    screen.blow(f"kill -9 {stage.gateway.pid} (gateway) {stage.worker.pid} (worker)")
    started = time.monotonic()
    await stage.restart()
    seconds = time.monotonic() - started
    screen.say(f"both started anew in {seconds:.1f} s: gateway pid {stage.gateway.pid}, worker pid {stage.worker.pid}")


async def _send(broker: Broker, stage: Stage, screen: Screen) -> str:
    text = f"count to {COUNT}"
    answer = await send_message(broker, stage.agent, build_message(text), immediately=True)
    task_id: str = answer["task"]["id"]
    screen.say(f"you say “{text}”: task {task_id}")
    return task_id


async def _read(
    broker: Broker, task_id: str, after: str, last: Callable[[Frame], bool], screen: Screen, *, replayed: int = 0
) -> AsyncIterator[Frame]:
    """One connection's frames, shown, up to the one that is ``last``; then the connection is closed. Those up to seq
    ``replayed`` are marked."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
    async with broker.stream(f"/v1/tasks/{segment(task_id)}/events", params={}, headers=headers) as response:
        _require(response.status_code == 200, f"a stream, not HTTP {response.status_code}")
        async for frame in read_frames(response.aiter_lines()):
            if frame.kind == RETRY:
                continue
            screen.event(frame, replayed=frame.seq <= replayed)
            yield frame
            if last(frame):
                return
    raise CliError("the demo expected more events, but the stream was closed")


async def _wait_for_seq(broker: Broker, task_id: str, seq: int) -> int:
    """The task's last seq, once it is at least ``seq``."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        view = await broker.call("GET", f"/v1/tasks/{segment(task_id)}")
        if int(view["lastSeq"]) >= seq:
            return int(view["lastSeq"])
        await asyncio.sleep(POLL_SECONDS)
    raise CliError(f"the demo expected event {seq} within {PATIENCE_SECONDS} s: does the worker work?")


async def _check_log(broker: Broker, task_id: str, seen: Sequence[Frame], screen: Screen) -> None:
    """What the stream gave is the ledger's log; one terminal state; nothing missing; the answer whole."""
    page = await broker.call(
        "GET", f"/v1/tasks/{segment(task_id)}/events", params={"limit": 1000}, headers={"Accept": "application/json"}
    )
    log: list[JsonObject] = page["events"]
    seqs = [frame.seq for frame in seen]
    _require(seqs == list(range(1, len(log) + 1)), f"seq 1..{len(log)}, each once, not {seqs}")
    _require([_payload(frame.data) for frame in seen] == [_payload(event) for event in log], "the stream = the log")
    ends = [frame for frame in seen if is_terminal(frame)]
    _require([state_of(frame) for frame in ends] == [TaskState.COMPLETED], f"one COMPLETED, not {len(ends)} ends")
    task: JsonObject = (await broker.call("GET", f"/v1/tasks/{segment(task_id)}"))["task"]
    answer = parts_text(task["artifacts"][0])
    _require(answer == ANSWER, f"the answer {ANSWER!r}, not {answer!r}")
    screen.proof(f"seq 1..{len(log)} without a gap or a double, one terminal state, the answer whole: {answer}")


def _payload(event: JsonObject) -> JsonObject:
    return {key: event[key] for key in ("seq", *PAYLOADS) if key in event}


def _require(condition: bool, expected: str) -> None:
    if not condition:
        raise CliError(f"the demo expected {expected}", remedy="this is a bug in Waystation: please report it")
