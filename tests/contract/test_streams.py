"""SendStreamingMessage and SubscribeToTask through both doors (a2a-server.md, Streaming; resume-contract.md)."""

import asyncio

import pytest

from app.protocol.events import RESUME_EXTENSION
from tests.contract.conftest import Agent
from tests.contract.doors import DoorError, Stream, say, short, state, text
from tests.support.worker import artifact, status

UNKNOWN = "01900000-0000-7000-8000-000000000000"
RESUME = {"A2A-Extensions": RESUME_EXTENSION}


async def shorts(stream: Stream) -> list[str]:
    return [short(item) for item in await stream.rest()]


async def test_a_stream_is_the_task_and_then_every_event(agent: Agent) -> None:
    async with agent.door().open("SendStreamingMessage", {"message": say("go")}) as stream:
        first = await stream.next_frame()
        assert first is not None
        assert (short(first.data), first.id) == ("task SUBMITTED", "1.1")
        async with agent.worker() as worker:
            lease = await worker.lease_one()
            await worker.write(lease, status("WORKING", "counting"), artifact("stock", "A:"))
            await worker.write(lease, artifact("stock", "3", append=True, last=True), status("COMPLETED", "done"))
        assert await shorts(stream) == ["WORKING", "WORKING", "stock=A:", "stock+3", "COMPLETED"]


async def test_the_first_frame_does_not_wait_for_a_worker(agent: Agent) -> None:
    async with agent.door().open("SendStreamingMessage", {"message": say("go")}) as stream:
        assert short(await stream.next(2) or {}) == "task SUBMITTED"


async def test_a_send_stream_closes_at_input_required(agent: Agent) -> None:
    async with agent.door().open("SendStreamingMessage", {"message": say("go")}) as stream:
        async with agent.worker() as worker:
            await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which?"))
        assert await shorts(stream) == ["task SUBMITTED", "WORKING", "INPUT_REQUIRED"]


async def test_a_send_stream_stays_open_at_auth_required(agent: Agent) -> None:
    door = agent.door()
    async with door.open("SendStreamingMessage", {"message": say("go")}) as stream, agent.worker() as worker:
        task = (await stream.next() or {})["task"]
        await worker.write(await worker.lease_one(), status("AUTH_REQUIRED", "sign in"))
        await door.send(say("signed in", taskId=task["id"]), now=True)
        await worker.write(await worker.lease_one(), status("COMPLETED"))
        assert await shorts(stream) == ["WORKING", "AUTH_REQUIRED", "WORKING", "WORKING", "COMPLETED"]


async def test_a_pause_that_a_queued_turn_answers_at_once_closes_nothing(agent: Agent) -> None:
    door = agent.door()
    async with door.open("SendStreamingMessage", {"message": say("go")}) as stream, agent.worker() as worker:
        lease = await worker.lease_one()
        await door.send(say("the answer", taskId=lease["taskId"]), now=True)
        await worker.write(lease, status("INPUT_REQUIRED", "which?"))
        await worker.write(await worker.lease_one(), status("COMPLETED"))
        assert await shorts(stream) == [
            "task SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "WORKING", "COMPLETED",
        ]  # fmt: skip


async def test_a_stream_goes_on_over_the_end_of_a_turn(agent: Agent) -> None:
    door = agent.door()
    async with door.open("SendStreamingMessage", {"message": say("go")}) as stream, agent.worker() as worker:
        lease = await worker.lease_one()
        await door.send(say("and then", taskId=lease["taskId"]), now=True)
        await worker.write(lease, status("COMPLETED", "one"))
        await worker.write(await worker.lease_one(), status("COMPLETED", "two"))
        assert await shorts(stream) == ["task SUBMITTED", "WORKING", "WORKING", "WORKING", "COMPLETED"]


async def test_a_follow_up_stream_begins_with_the_task_as_it_stands(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which?"))
        async with door.open("SendStreamingMessage", {"message": say("this", taskId=task["id"])}) as stream:
            snapshot = (await stream.next() or {})["task"]
            assert (state(snapshot), [text(message) for message in snapshot["history"]]) == (
                "WORKING", ["go", "which?", "this"],
            )  # fmt: skip
            await worker.write(await worker.lease_one(), status("COMPLETED"))
            assert await shorts(stream) == ["WORKING", "COMPLETED"]


async def test_a_follow_up_stream_misses_nothing_of_a_quick_worker(agent: Agent) -> None:
    """A worker that waits for the answer may have ended the task before the first frame is made."""
    door = agent.door()
    async with agent.worker() as worker:
        for _ in range(10):
            task = await door.send(say("go"), now=True)
            await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which?"))

            async def work() -> None:
                await worker.write(await worker.lease_one(), artifact("x", "y"), status("COMPLETED"))

            working = asyncio.create_task(work())
            async with door.open("SendStreamingMessage", {"message": say("this", taskId=task["id"])}) as stream:
                assert await shorts(stream) == ["task WORKING", "WORKING", "x=y", "COMPLETED"]
            await working


async def test_a_duplicate_stream_is_the_same_task_and_says_so(agent: Agent) -> None:
    door, message = agent.door(), say("go")
    task = await door.send(message, now=True)
    async with door.open("SendStreamingMessage", {"message": message}) as stream:
        assert stream.response.headers["waystation-replayed"] == "true"
        assert (await stream.next() or {})["task"]["id"] == task["id"]
    await door.cancel(task["id"])
    async with door.open("SendStreamingMessage", {"message": message}) as stream:
        assert await shorts(stream) == ["task CANCELED"], "ended already: the task, then the end"


async def test_a2a_java_754_a_subscription_to_a_paused_task_stays_open(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED"))
        async with door.open("SubscribeToTask", {"id": task["id"]}) as stream:
            assert short(await stream.next() or {}) == "task INPUT_REQUIRED"
            await door.send(say("this", taskId=task["id"]), now=True)
            await worker.write(await worker.lease_one(), status("COMPLETED"))
            assert await shorts(stream) == ["WORKING", "WORKING", "COMPLETED"]


async def test_a2a_dotnet_344_a_dropped_stream_is_taken_up_by_a_subscription(agent: Agent) -> None:
    """And a2a-python#296: the drop cancels nothing."""
    door = agent.door()
    async with agent.worker() as worker:
        async with door.open("SendStreamingMessage", {"message": say("go")}) as stream:
            task = (await stream.next() or {})["task"]
            lease = await worker.lease_one()
            await worker.write(lease, artifact("stock", "A:"))
        async with door.open("SubscribeToTask", {"id": task["id"]}) as stream:
            snapshot = await stream.next_frame()
            assert snapshot is not None
            assert (short(snapshot.data), text(snapshot.data["task"]["artifacts"][0])) == ("task WORKING", "A:")
            seq = snapshot.data["task"]["metadata"][RESUME_EXTENSION]["lastSeq"]
            assert snapshot.id == f"1.{seq}"
            await worker.write(lease, artifact("stock", "3", append=True, last=True), status("COMPLETED"))
            frames = [await stream.next_frame(), await stream.next_frame()]
            assert [frame and (short(frame.data), frame.id) for frame in frames] == [
                ("stock+3", f"1.{seq + 1}"), ("COMPLETED", f"1.{seq + 2}"),
            ]  # fmt: skip
            assert await stream.next() is None
        assert state(await door.get(task["id"])) == "COMPLETED"


async def test_open_cowork_662_several_streams_get_the_same_events(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with (
        agent.worker() as worker,
        door.open("SubscribeToTask", {"id": task["id"]}) as first,
        door.open("SubscribeToTask", {"id": task["id"]}) as second,
    ):
        lease = await worker.lease_one()
        async with door.open("SubscribeToTask", {"id": task["id"]}) as dropped:
            await dropped.next()
        await worker.write(lease, *(artifact("x", str(number)) for number in range(5)), status("COMPLETED"))
        one, two = await asyncio.gather(first.rest(), second.rest())
    assert one == two
    assert [short(item) for item in one][1:] == ["WORKING", "x=0", "x=1", "x=2", "x=3", "x=4", "COMPLETED"]


async def test_a2a_python_1205_a_terminal_task_has_no_subscription(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    await door.cancel(task["id"])
    with pytest.raises(DoorError, match="UNSUPPORTED_OPERATION") as caught:
        async with door.open("SubscribeToTask", {"id": task["id"]}):
            pass
    assert caught.value.metadata == {"state": "TASK_STATE_CANCELED", "lastSeq": "2"}


@pytest.mark.parametrize("task_id", [UNKNOWN, "nonsense"])
async def test_an_unknown_task_has_no_subscription(agent: Agent, task_id: str) -> None:
    with pytest.raises(DoorError, match="TASK_NOT_FOUND"):
        async with agent.door().open("SubscribeToTask", {"id": task_id}):
            pass


async def test_frontmcp_529_a_foreign_tasks_cursor_shows_nothing(agent: Agent) -> None:
    agent.register(visibility="shared", sharedWith=["*"])
    task = await agent.door().send(say("canary-4711"), now=True)
    with pytest.raises(DoorError, match="TASK_NOT_FOUND") as caught:
        async with agent.door("b").open("SubscribeToTask", {"id": task["id"]}, **RESUME, Last_Event_ID="1.0"):
            pass
    assert "4711" not in caught.value.response.text


async def test_a_card_without_streaming_has_no_streams(agent: Agent) -> None:
    answer = agent.broker.register_agent(agent.id)
    card = answer["card"] | {"capabilities": {"streaming": False}}
    agent.register(card=card)
    door = agent.door()
    task = await door.send(say("go"), now=True)
    for operation, params in (
        ("SendStreamingMessage", {"message": say("go")}),
        ("SubscribeToTask", {"id": task["id"]}),
    ):
        with pytest.raises(DoorError, match="UNSUPPORTED_OPERATION"):
            async with door.open(operation, params):
                pass
    assert (await door.list())["totalSize"] == 1, "nothing stored"


async def test_without_the_extension_a_last_event_id_is_ignored(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with door.open("SubscribeToTask", {"id": task["id"]}, Last_Event_ID="9.garbage") as stream:
        frame = await stream.next_frame()
        assert frame is not None
        assert (short(frame.data), frame.id) == ("task SUBMITTED", "1.1")


async def finished(agent: Agent) -> str:
    """A completed task: 1 submitted, 2 turn.started, 3 WORKING, 4 and 5 artifact, 6 COMPLETED."""
    task = await agent.door().send(say("go"), now=True)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("x", "A"), artifact("x", "B", append=True), status("COMPLETED"))
    return task["id"]


async def test_a_cursor_with_the_extension_gives_the_exact_replay(agent: Agent) -> None:
    door, task_id = agent.door(), await finished(agent)
    async with door.open("SubscribeToTask", {"id": task_id}, **RESUME, Last_Event_ID="1.4") as stream:
        assert stream.response.headers["a2a-extensions"] == RESUME_EXTENSION
        frames = [await stream.next_frame() for _ in range(3)]
        assert [frame and (short(frame.data), frame.id) for frame in frames] == [
            ("task COMPLETED", None), ("x+B", "1.5"), ("COMPLETED", "1.6"),
        ]  # fmt: skip
        assert await stream.next() is None


async def test_a_cursor_at_the_end_of_a_terminal_task_is_unsupported(agent: Agent) -> None:
    door, task_id = agent.door(), await finished(agent)
    for cursor in ("1.6", "1.99"):
        with pytest.raises(DoorError, match="UNSUPPORTED_OPERATION") as caught:
            async with door.open("SubscribeToTask", {"id": task_id}, **RESUME, Last_Event_ID=cursor):
                pass
        assert caught.value.metadata == {"state": "TASK_STATE_COMPLETED", "lastSeq": "6"}


@pytest.mark.parametrize("cursor", ["garbage", "1.2.3", "-1", str(2**63), "1.9223372036854775808", "1."])
async def test_a_malformed_cursor_is_invalid(agent: Agent, cursor: str) -> None:
    door, task_id = agent.door(), await finished(agent)
    with pytest.raises(DoorError, match="INVALID_PARAMS"):
        async with door.open("SubscribeToTask", {"id": task_id}, **RESUME, Last_Event_ID=cursor):
            pass


@pytest.mark.parametrize(
    ("cursor", "reset"),
    [
        ("1.99", {"reason": "cursor_ahead", "lostFrom": 2, "lostTo": 99, "snapshotSeq": 1}),
        ("7.1", {"reason": "incarnation", "lostFrom": 1, "lostTo": 1, "snapshotSeq": 1}),
    ],
)
async def test_a_cursor_that_cannot_be_served_is_a_reset(agent: Agent, cursor: str, reset: dict[str, object]) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with door.open("SubscribeToTask", {"id": task["id"]}, **RESUME, Last_Event_ID=cursor) as stream:
        frame = await stream.next_frame()
        assert frame is not None
        assert frame.id == "1.1"
        assert frame.data["task"]["metadata"][RESUME_EXTENSION]["reset"] == reset
        await door.cancel(task["id"])
        assert await shorts(stream) == ["CANCELED"]


async def test_other_ways_to_bring_the_cursor(agent: Agent) -> None:
    task_id = await finished(agent)
    rpc, rest = agent.door(name="jsonrpc"), agent.door(name="rest")
    for cursor in ({"lastEventId": "1.4"}, "1.4", 4):
        params = {"id": task_id, "metadata": {RESUME_EXTENSION: cursor}}
        async with rpc.open("SubscribeToTask", params, **RESUME, Last_Event_ID="1.2") as stream:
            assert await shorts(stream) == ["task COMPLETED", "x+B", "COMPLETED"], "the greater of the two counts"
    async with rest.open("SubscribeToTask", {"id": task_id, "after_sequence_number": 4}, **RESUME) as stream:
        assert await shorts(stream) == ["task COMPLETED", "x+B", "COMPLETED"]
    for bad in (True, [4], {"lastEventId": {}}):
        params = {"id": task_id, "metadata": {RESUME_EXTENSION: bad}}
        with pytest.raises(DoorError, match="INVALID_PARAMS"):
            async with rpc.open("SubscribeToTask", params, **RESUME):
                pass


async def test_a2a_go_381_subscribe_by_get_and_by_post(agent: Agent) -> None:
    door = agent.door(name="rest")
    task = await door.send(say("go"), now=True)
    for method in ("GET", "POST"):
        path = f"{door.base}/a2a/tasks/{task['id']}:subscribe"
        async with door.http.stream(method, path) as response:
            assert short(await Stream(response, None).next() or {}) == "task SUBMITTED"


async def test_agentstack_1497_every_frame_has_the_requests_id(agent: Agent) -> None:
    door = agent.door(name="jsonrpc")
    for request_id in (7, "7"):
        task = await door.send(say("go"), now=True)
        envelope = {"jsonrpc": "2.0", "id": request_id, "method": "SubscribeToTask", "params": {"id": task["id"]}}
        async with door.http.stream("POST", f"{door.base}/rpc", json=envelope) as response:
            stream = Stream(response, None)
            first = await stream.next()
            await door.cancel(task["id"])
            for frame in (first, *await stream.rest()):
                assert frame is not None
                assert (frame["jsonrpc"], frame["id"], type(frame["id"])) == ("2.0", request_id, type(request_id))


async def test_siclaw_340_a_late_failure_does_not_overwrite_canceled(agent: Agent) -> None:
    agent.register(cancelGraceSeconds=0)
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        async with door.open("SubscribeToTask", {"id": task["id"]}) as stream:
            await stream.next()
            await door.cancel(task["id"])
            assert (await worker.events(lease, status("FAILED", "late"))).status_code == 409
            assert await shorts(stream) == ["WORKING", "CANCELED"]
    assert state(await door.get(task["id"])) == "CANCELED"
