"""Agents registered with ``reply: "message"`` through both doors (a2a-server.md, Streaming)."""

import asyncio
import time

import pytest

from app.protocol.events import RESUME_EXTENSION
from tests.contract.conftest import Agent
from tests.contract.doors import Door, Json, say, short, state, text
from tests.support.calls import native_events
from tests.support.worker import artifact, direct, status

BROKER_ENVIRONMENT = {"WAYSTATION_BLOCKING_WAIT_SECONDS": "20"}


@pytest.fixture
def talker(agent: Agent) -> Agent:
    agent.register(reply="message", leaseSeconds=1, retry={"backoffSeconds": 0})
    return agent


async def answer(door: Door, message: Json, **more: object) -> Json:
    """SendMessage's whole answer."""
    return await door.call("SendMessage", {"message": message} | more)


async def streamed(door: Door, message: Json) -> list[Json]:
    async with door.open("SendStreamingMessage", {"message": message}) as stream:
        return await stream.rest(30)


async def test_a_direct_message_answers_a_blocking_send(talker: Agent) -> None:
    door = talker.door()
    async with talker.worker() as worker:
        asked = asyncio.create_task(answer(door, say("ping")))
        lease = await worker.lease_one()
        await worker.write(lease, direct("pong"))
        replied = await asked
    assert set(replied) == {"message"}
    message = replied["message"]
    assert (text(message), message["role"]) == ("pong", "ROLE_AGENT")
    assert (message["taskId"], message["contextId"]) == (lease["taskId"], lease["contextId"])
    task = await door.get(lease["taskId"])
    assert (state(task), task["status"]["message"]) == ("COMPLETED", message)


async def test_a_direct_message_is_the_one_frame_of_a_stream(talker: Agent) -> None:
    door = talker.door()
    async with talker.worker() as worker:
        frames = asyncio.create_task(streamed(door, say("ping")))
        lease = await worker.lease_one()
        await worker.write(lease, direct("pong"))
        (frame,) = await frames
    assert set(frame) == {"message"}
    assert (text(frame["message"]), frame["message"]["taskId"]) == ("pong", lease["taskId"])


@pytest.mark.parametrize("last", [status("COMPLETED", "pong"), status("INPUT_REQUIRED", "which?")])
async def test_an_answer_that_is_no_direct_message_is_the_task(talker: Agent, last: Json) -> None:
    """COMPLETED with a status message is not a direct reply, although both end alike."""
    door = talker.door()
    async with talker.worker() as worker:
        asked, frames = asyncio.create_task(answer(door, say("1"))), asyncio.create_task(streamed(door, say("2")))
        for lease in (await worker.lease_one(), await worker.lease_one()):
            await worker.write(lease, last)
        ended = state(last["statusUpdate"])
        assert state((await asked)["task"]) == ended
        assert [short(item) for item in await frames] == ["task SUBMITTED", "WORKING", ended]


async def test_a_stream_begins_with_the_workers_first_own_event(talker: Agent) -> None:
    """The WORKING of the claim is the broker's: it does not decide what the answer is."""
    door = talker.door()
    async with talker.worker() as worker:
        frames = asyncio.create_task(streamed(door, say("go")))
        lease = await worker.lease_one()
        assert not frames.done()
        await worker.write(lease, artifact("x", "1"))
        refused = await worker.events(lease, direct("late"))
        assert refused.json()["error"]["details"][0]["reason"] == "INVALID_TRANSITION"
        await worker.write(lease, status("COMPLETED"))
        assert [short(item) for item in await frames] == ["task SUBMITTED", "WORKING", "x=1", "COMPLETED"]


async def test_return_immediately_always_gives_a_task(talker: Agent) -> None:
    door, message = talker.door(), say("go")
    assert state((await answer(door, message, configuration={"returnImmediately": True}))["task"]) == "SUBMITTED"
    async with talker.worker() as worker:
        await worker.write(await worker.lease_one(), direct("pong"))
    again = await answer(door, message, configuration={"returnImmediately": True})
    assert state(again["task"]) == "COMPLETED"


async def test_after_ten_seconds_it_goes_on_as_a_task(talker: Agent) -> None:
    talker.register(reply="message", leaseSeconds=30)
    door, start = talker.door(), time.monotonic()
    asked = asyncio.create_task(answer(door, say("1")))
    async with talker.worker() as worker, door.open("SendStreamingMessage", {"message": say("2")}) as stream:
        assert short(await stream.next() or {}) == "task SUBMITTED"
        assert time.monotonic() - start > 9
        for lease in (await worker.lease_one(), await worker.lease_one()):
            await worker.write(lease, direct("late"))
        assert [short(item) for item in await stream.rest()] == ["WORKING", "COMPLETED"]
        assert (state((await asked)["task"]), text((await asked)["task"]["status"]["message"])) == ("COMPLETED", "late")


async def test_a_duplicate_gets_the_same_message(talker: Agent) -> None:
    """resume-contract.md, Duplicates: the original task or direct reply, in the wait mode of the retry itself."""
    door, message = talker.door(), say("ping")
    async with talker.worker() as worker:
        asked = [asyncio.create_task(answer(door, message)) for _ in range(5)]
        await worker.write(await worker.lease_one(), direct("pong"))
        first, *others = await asyncio.gather(*asked)
        assert await worker.lease(wait=0) == []
    assert set(first) == {"message"}
    assert others == [first] * 4
    assert await answer(door, message) == first
    assert door.replayed
    assert await streamed(door, message) == [first]


async def test_with_a_turn_queued_each_sender_gets_the_message_of_its_own_turn(talker: Agent) -> None:
    talker.register(reply="message")
    door = talker.door()
    async with talker.worker() as worker:
        first = asyncio.create_task(answer(door, say("one")))
        lease = await worker.lease_one()
        second = asyncio.create_task(streamed(door, say("two", taskId=lease["taskId"])))
        while len((await door.get(lease["taskId"]))["history"]) < 2:
            await asyncio.sleep(0.01)
        ended = await worker.write(lease, direct("1"))
        assert (ended["turnEnded"], ended["state"]) == (True, "TASK_STATE_WORKING")
        assert text((await first)["message"]) == "1"
        assert not second.done()
        await worker.write(await worker.lease_one(), direct("2"))
        assert [text(frame["message"]) for frame in await second] == ["2"]
    task = await door.get(lease["taskId"])
    assert [text(message) for message in task["history"]] == ["one", "two", "1"]
    assert (state(task), text(task["status"]["message"])) == ("COMPLETED", "2")


async def test_a_follow_up_to_a_paused_task_gets_a_message(talker: Agent) -> None:
    door = talker.door()
    async with talker.worker() as worker:
        asked = asyncio.create_task(answer(door, say("go")))
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which?"))
        task = (await asked)["task"]
        asked = asyncio.create_task(answer(door, say("this", taskId=task["id"])))
        await worker.write(await worker.lease_one(), direct("done"))
        assert text((await asked)["message"]) == "done"


async def test_the_next_attempt_answers_when_a_worker_is_lost(talker: Agent) -> None:
    door = talker.door()
    async with talker.worker() as lost, talker.worker() as worker:
        asked = asyncio.create_task(answer(door, say("ping")))
        stale = await lost.lease_one()
        lease = await worker.lease_one()
        assert (lease["taskId"], lease["attempt"]) == (stale["taskId"], 2)
        assert (await lost.events(stale, direct("from the lost one"))).status_code == 409
        await worker.write(lease, direct("pong"))
        assert text((await asked)["message"]) == "pong"


async def test_a_cancel_before_any_answer_is_the_canceled_task(talker: Agent) -> None:
    door = talker.door()
    asked, frames = asyncio.create_task(answer(door, say("1"))), asyncio.create_task(streamed(door, say("2")))
    while len(listed := (await door.list())["tasks"]) < 2:
        await asyncio.sleep(0.01)
    for task in listed:
        await door.cancel(task["id"])
    assert state((await asked)["task"]) == "CANCELED"
    assert [short(item) for item in await frames] == ["task SUBMITTED", "CANCELED"]


async def test_an_agent_that_answers_with_tasks_makes_a_message_a_status(agent: Agent) -> None:
    door = agent.door()
    async with agent.worker() as worker:
        asked, frames = asyncio.create_task(answer(door, say("1"))), asyncio.create_task(streamed(door, say("2")))
        for lease in (await worker.lease_one(), await worker.lease_one()):
            await worker.write(lease, direct("pong"))
        task = (await asked)["task"]
        assert (state(task), text(task["status"]["message"])) == ("COMPLETED", "pong")
        assert [short(item) for item in await frames] == ["task SUBMITTED", "WORKING", "COMPLETED"]


async def test_the_log_tells_a_direct_reply_from_a_status_with_a_message(talker: Agent) -> None:
    """Only the broker can: what a worker says under the extension's URI is dropped."""
    door = talker.door()
    forged = status("COMPLETED", "pong")
    forged["statusUpdate"]["metadata"] = {RESUME_EXTENSION: {"directReply": True}}
    marks: list[object] = []
    async with talker.worker() as worker:
        for event in (direct("pong"), forged):
            task = await door.send(say("go"), now=True)
            await worker.write(await worker.lease_one(), event)
            last = (await native_events(door.http, task["id"]))[-1]["statusUpdate"]
            assert (state(last), text(last["status"]["message"])) == ("COMPLETED", "pong")
            marks.append(last.get("metadata"))
    assert marks == [{RESUME_EXTENSION: {"attempt": 1, "directReply": True, "turn": 1}}, None]
