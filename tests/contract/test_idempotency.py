"""Duplicate messages through both doors (resume-contract.md, Duplicates)."""

import asyncio

import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import DoorError, say, state, text
from tests.support.worker import status


async def test_the_same_message_again_is_the_same_task(agent: Agent) -> None:
    """aws-samples/sample-autonomous-cloud-coding-agents#58."""
    door, message = agent.door(), say("go")
    first = await door.send(message, now=True)
    assert door.last is not None
    assert "waystation-replayed" not in door.last.headers
    again = await door.send(message, now=True)
    assert (again["id"], door.last.headers["waystation-replayed"]) == (first["id"], "true")
    assert (await door.list())["totalSize"] == 1


async def test_overpass_16_the_same_key_with_another_body_is_a_conflict(agent: Agent) -> None:
    door, message = agent.door(), say("go")
    await door.send(message, now=True)
    with pytest.raises(DoorError, match="IDEMPOTENCY_CONFLICT"):
        await door.send(message | {"parts": [{"text": "stop"}]}, now=True)


async def test_both_doors_see_one_message_in_any_spelling(agent: Agent) -> None:
    message = say("go", metadata={"b": 1, "a": 2.0})
    respelled = {
        "message_id": message["messageId"],
        "role": 1,
        "parts": [{"text": "go", "unknownField": True}],
        "metadata": {"a": 2, "b": 1e0},
        "contextId": "",
    }
    first = await agent.door(name="jsonrpc").send(message, now=True)
    again = await agent.door(name="rest").send(respelled, now=True)
    assert first["id"] == again["id"]


async def test_trace_metadata_and_configuration_do_not_count(agent: Agent) -> None:
    door, message = agent.door(), say("go")
    first = await door.send(message | {"metadata": {"traceparent": "00-1"}}, now=True)
    again = await door.send(
        message | {"metadata": {"traceparent": "00-2"}}, now=True, configuration={"historyLength": 0}
    )
    assert first["id"] == again["id"]


async def test_fifty_at_once_are_one_task(agent: Agent) -> None:
    """resume-contract.md, scenario 15."""
    door, message = agent.door(), say("go")
    tasks = await asyncio.gather(*(door.send(message, now=True) for _ in range(50)))
    assert len({task["id"] for task in tasks}) == 1
    async with agent.worker() as worker:
        assert len(await worker.lease(max=10)) == 1
        assert await worker.lease(wait=0) == []


async def test_a_retry_waits_in_its_own_mode_and_answers_the_task_as_it_stands(agent: Agent) -> None:
    door, message = agent.door(), say("go")
    await door.send(message, now=True)
    async with agent.worker() as worker:
        blocking = asyncio.create_task(door.send(message))
        await worker.write(await worker.lease_one(), status("COMPLETED"))
        assert state(await blocking) == "COMPLETED"
    again = await door.send(message)
    assert state(again) == "COMPLETED", "judged before the terminal check"


async def test_a_follow_up_is_judged_before_the_terminal_check(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    follow_up = say("more", taskId=task["id"])
    await door.send(follow_up, now=True)
    await door.cancel(task["id"])
    again = await door.send(follow_up, now=True)
    assert (again["id"], state(again)) == (task["id"], "CANCELED")


async def test_an_idempotency_key_header_counts_beside_the_message_id(agent: Agent) -> None:
    door, message = agent.door(), say("go")
    key = {"Idempotency-Key": "k1"}
    first = await door.send(message, now=True, headers=key)
    assert (await door.send(message, now=True, headers=key))["id"] == first["id"]
    assert (await door.send(message, now=True))["id"] == first["id"]
    with pytest.raises(DoorError, match="IDEMPOTENCY_CONFLICT"):
        await door.send(say("go"), now=True, headers=key)
    with pytest.raises(DoorError, match="INVALID_ARGUMENT"):
        await door.send(message, now=True, headers={"Idempotency-Key": "k" * 257})


async def test_keys_of_a_message_and_a_header_that_disagree_are_a_conflict(agent: Agent) -> None:
    door, one, two = agent.door(), say("1"), say("2")
    await door.send(one, now=True, headers={"Idempotency-Key": "one"})
    await door.send(two, now=True)
    with pytest.raises(DoorError, match="IDEMPOTENCY_CONFLICT"):
        await door.send(two, now=True, headers={"Idempotency-Key": "one"})


async def test_key_only_agents_take_a_message_id_again(agent: Agent) -> None:
    agent.register(idempotency="key_only")
    door, message = agent.door(), say("go")
    tasks = [await door.send(message, now=True) for _ in range(2)]
    assert tasks[0]["id"] != tasks[1]["id"]


async def test_history_has_every_message_of_a_key_only_agent(agent: Agent) -> None:
    """docs/decisions/reused-message-ids.md."""
    agent.register(idempotency="key_only")
    door = agent.door()
    task = await door.send(say("one", messageId="m"), now=True)
    await door.send(say("two", messageId="m", taskId=task["id"]), now=True)
    again = say("three", messageId="m", taskId=task["id"])
    for _ in range(2):
        await door.send(again, now=True, headers={"Idempotency-Key": "k"})
    history = (await door.get(task["id"]))["history"]
    assert [(said["messageId"], text(said)) for said in history] == [("m", "one"), ("m", "two"), ("m", "three")]


async def test_history_has_the_messages_of_two_subjects_with_one_id(agent: Agent) -> None:
    task = await agent.door().send(say("one", messageId="m"), now=True)
    await agent.door(subject="u2").send(say("two", messageId="m", taskId=task["id"]), now=True)
    assert [text(said) for said in (await agent.door().get(task["id"]))["history"]] == ["one", "two"]


async def test_other_subjects_and_tenants_have_keys_of_their_own(agent: Agent) -> None:
    agent.register(visibility="shared", sharedWith=["*"])
    message = say("go")
    doors = [agent.door(), agent.door(subject="u2"), agent.door("b")]
    assert len({(await door.send(message, now=True))["id"] for door in doors}) == 3
