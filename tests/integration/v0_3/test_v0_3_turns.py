"""A2A 0.3 on both of its doors: the operations, and what 0.3 says otherwise than 1.0 (a2a-server.md, v0.3)."""

import asyncio

import pytest

from tests.contract.doors import DoorError, Json, say, short, state, text
from tests.integration.v0_3.conftest import Agent
from tests.support.worker import artifact, direct, status

UNKNOWN = "01900000-0000-7000-8000-000000000000"


async def test_send_waits_for_the_turn_and_get_says_the_same(agent: Agent) -> None:
    door = agent.door()
    async with agent.worker() as worker:
        sending = asyncio.create_task(door.send(say("go")))
        lease = await worker.lease_one()
        await worker.write(lease, artifact("stock", "A:"), artifact("stock", "3", append=True, last=True))
        await worker.write(lease, status("COMPLETED", "done"))
        task = await sending
    assert (state(task), text(task["status"]["message"]), text(task["artifacts"][0])) == ("COMPLETED", "done", "A:3")
    assert await door.get(task["id"]) == task
    assert [message["role"] for message in task["history"]] == ["ROLE_USER"]
    assert task == await agent.v1().get(task["id"])


async def test_blocking_that_is_not_given_is_true_on_json_rpc_and_false_in_protojson(agent: Agent) -> None:
    """As the SDKs' servers do: a bool of proto3 that is absent is false, and their REST clients leave false out."""
    door = agent.door()
    method, path, kwargs = door.request("SendMessage", {"message": say("go")})
    body = kwargs["json"] if door.proto else kwargs["json"]["params"]
    del body["configuration"]["blocking"]
    sending = asyncio.create_task(door.http.request(method, path, **kwargs))
    async with agent.worker() as worker:
        if not door.proto:
            await worker.write(await worker.lease_one(), status("COMPLETED"))
        answer = await sending
    task = answer.json()["task"] if door.proto else answer.json()["result"]
    assert task["status"]["state"] == ("TASK_STATE_SUBMITTED" if door.proto else "completed")


async def test_a_stream_says_which_event_ends_it(agent: Agent) -> None:
    """``final`` is on the last event and on no other, be it terminal or the turn's end in input-required."""
    door = agent.door()
    async with agent.worker() as worker, door.open("SendStreamingMessage", {"message": say("go")}) as stream:
        first = await stream.next()
        assert first is not None
        assert state(first["task"]) == "SUBMITTED"
        lease = await worker.lease_one()
        await worker.write(lease, status("WORKING", "counting"), artifact("stock", "A:"))
        await worker.write(lease, status("INPUT_REQUIRED", "which one?"))
        events = await stream.rest()
    assert [short(event) for event in events] == ["WORKING", "WORKING", "stock=A:", "INPUT_REQUIRED"]
    assert [event["statusUpdate"]["final"] for event in events if "statusUpdate" in event] == _only_last(3)
    follow_up = say("this one", taskId=first["task"]["id"])
    async with agent.worker() as worker, door.open("SendStreamingMessage", {"message": follow_up}) as stream:
        assert short(await stream.next() or {}) == "task WORKING"
        await worker.write(await worker.lease_one(), status("COMPLETED"))
        events = await stream.rest()
    assert [short(event) for event in events] == ["WORKING", "COMPLETED"]
    assert [event["statusUpdate"]["final"] for event in events] == _only_last(2)


def _only_last(count: int) -> list[bool]:
    return [False] * (count - 1) + [True]


async def test_a2a_java_754_resubscribing_gives_the_task_first_and_stays_open_at_input_required(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which one?"))
        async with door.open("SubscribeToTask", {"id": task["id"]}) as stream:
            assert short(await stream.next() or {}) == "task INPUT_REQUIRED"
            await door.send(say("this one", taskId=task["id"]), now=True)
            await worker.write(await worker.lease_one(), status("COMPLETED"))
            assert [short(event) for event in await stream.rest()] == ["WORKING", "WORKING", "COMPLETED"]


async def test_frames_of_a_stream_are_those_of_1_0_with_the_same_ids(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with (
        agent.worker() as worker,
        door.open("SubscribeToTask", {"id": task["id"]}) as older,
        agent.v1().open("SubscribeToTask", {"id": task["id"]}) as newer,
    ):
        lease = await worker.lease_one()
        await worker.write(lease, artifact("stock", "A:\u2028ü"), status("COMPLETED", "done"))
        for _ in range(4):
            one, other = await older.next_frame(), await newer.next_frame()
            assert one is not None
            assert other is not None
            assert one.id == other.id
            for item in (one.data.get("statusUpdate", {}), one.data.get("artifactUpdate", {})):
                item.pop("final", None)
            assert _without_flags(one.data) == _without_flags(other.data)


def _without_flags(item: Json) -> Json:
    """0.3 prints both flags of an artifact update always."""
    update = item.get("artifactUpdate")
    if update is None:
        return item
    return {"artifactUpdate": {key: value for key, value in update.items() if value is not False}}


async def test_a2a_python_573_history_length(agent: Agent) -> None:
    """0 means all in 0.3, as in its SDKs; the last n otherwise; less than none is refused."""
    door = agent.door()
    task = await door.send(say("first"), now=True)
    await door.send(say("second", taskId=task["id"]), now=True)
    history = {length: (await door.get(task["id"], historyLength=length)).get("history", []) for length in (0, 1, 9)}
    assert {length: len(messages) for length, messages in history.items()} == {0: 2, 1: 1, 9: 2}
    assert text(history[1][0]) == "second"
    with pytest.raises(DoorError) as refused:
        await door.get(task["id"], historyLength=-1)
    assert refused.value.reason == "INVALID_PARAMS"


async def test_every_kind_of_part_comes_back(agent: Agent) -> None:
    parts: list[Json] = [
        {"text": "go", "metadata": {"n": 1}},
        {"data": {"sku": 7, "deep": [{"a": None}]}},
        {"data": [1, 2], "metadata": {"m": True}},
        {"raw": "AAEC/w==", "filename": "a.bin", "mediaType": "application/octet-stream"},
        {"url": "https://example.org/a.pdf", "mediaType": "application/pdf"},
    ]
    card = agent.broker.register_agent(agent.id)["card"]
    agent.register(card=card | {"defaultInputModes": ["*/*"]})
    door = agent.door()
    extras: Json = {"metadata": {"a": {"b": 1}}, "extensions": ["https://example.org/x"]}
    task = await door.send(say("go", parts=parts, **extras), now=True)
    shown = task["history"][0]
    assert [shown["parts"], shown["metadata"], shown["extensions"]] == [parts, *extras.values()]
    stored = (await agent.v1().get(task["id"]))["history"][0]
    assert [stored["parts"], stored["metadata"], stored["extensions"]] == [parts, *extras.values()]


async def test_reference_task_ids_are_kept(agent: Agent) -> None:
    """0.3's a2a.proto has no such field, so HTTP+JSON takes it and does not show it."""
    door = agent.door()
    task = await door.send(say("go", referenceTaskIds=["x"]), now=True)
    assert task["history"][0].get("referenceTaskIds") == (None if door.proto else ["x"])
    assert (await agent.v1().get(task["id"]))["history"][0]["referenceTaskIds"] == ["x"]


async def test_cancel_and_the_terminal_rules(agent: Agent) -> None:
    """a2a-python#413, a2a-go#438: codes -32002 and -32004, and canceled is spelt as this door spells it."""
    door = agent.door()
    task = await door.send(say("go"), now=True)
    assert state(await door.cancel(task["id"])) == "CANCELED"
    for operation, params, reason in (
        ("CancelTask", {"id": task["id"]}, "TASK_NOT_CANCELABLE"),
        ("SendMessage", {"message": say("more", taskId=task["id"])}, "UNSUPPORTED_OPERATION"),
        ("GetTask", {"id": UNKNOWN}, "TASK_NOT_FOUND"),
        ("CancelTask", {"id": UNKNOWN}, "TASK_NOT_FOUND"),
        ("SendMessage", {"message": say("more", taskId=UNKNOWN)}, "TASK_NOT_FOUND"),
    ):
        with pytest.raises(DoorError) as refused:
            await door.call(operation, params)
        assert refused.value.reason == reason
    with pytest.raises(DoorError) as refused:
        async with door.open("SubscribeToTask", {"id": task["id"]}):
            pass
    assert refused.value.reason == "UNSUPPORTED_OPERATION"


async def test_a_direct_message_is_the_answer(agent: Agent) -> None:
    agent.register(reply="message")
    door = agent.door()
    async with agent.worker() as worker:
        sending = asyncio.create_task(door.call("SendMessage", {"message": say("hello")}))
        await worker.write(await worker.lease_one(), direct("hello to you"))
        assert text((await sending)["message"]) == "hello to you"


async def test_the_same_message_through_0_3_and_1_0_is_one_task(agent: Agent) -> None:
    """aws-samples/sample-autonomous-cloud-coding-agents#58: the message is the same whatever it was spelt in."""
    message = say("go", metadata={"n": 1})
    first = await agent.door().send(message, now=True)
    again = await agent.v1().send(message, now=True)
    assert again["id"] == first["id"]


async def test_a_stream_is_resumed_after_a_cursor(agent: Agent) -> None:
    """The resume extension, asked for under 0.3's header and echoed under it."""
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), artifact("stock", "A:"), status("COMPLETED"))
    asked = {"X_A2A_Extensions": "https://waystation.dev/ext/resume/v1", "Last_Event_ID": "1"}
    async with door.open("SubscribeToTask", {"id": task["id"]}, **asked) as stream:
        assert stream.response.headers["x-a2a-extensions"] == "https://waystation.dev/ext/resume/v1"
        events = await stream.rest()
    assert [short(event) for event in events] == ["task COMPLETED", "WORKING", "stock=A:", "COMPLETED"]
