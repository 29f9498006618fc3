"""History through every door: each message once, in order, agents' too, and as many as were asked for (A2A v1.0 §3.2.4;
resume-contract.md, History)."""

import asyncio

import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import Json, say, short, text
from tests.support.worker import artifact, direct, status


def spoken(task: Json) -> list[tuple[str, str]]:
    """Role and text of the whole conversation: history, then what status says."""
    said = [*task.get("history", []), *([task["status"]["message"]] if "message" in task["status"] else [])]
    return [(message["role"].removeprefix("ROLE_").lower(), text(message)) for message in said]


async def conversation(agent: Agent) -> str:
    """u1, a1, u2, a2, a3: a pause, its answer, progress, the end."""
    door = agent.door()
    task = await door.send(say("u1"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), artifact("x", "1"), status("INPUT_REQUIRED", "a1"))
        await door.send(say("u2", taskId=task["id"]), now=True)
        lease = await worker.lease_one()
        await worker.write(lease, status("WORKING", "a2"))
        await worker.write(lease, artifact("x", "2"), status("COMPLETED", "a3"))
    return task["id"]


async def test_a2a_192_history_has_each_message_once_in_order_agents_too(agent: Agent) -> None:
    task = await agent.door().get(await conversation(agent))
    expected = [("user", "u1"), ("agent", "a1"), ("user", "u2"), ("agent", "a2"), ("agent", "a3")]
    assert spoken(task) == expected
    assert text(task["status"]["message"]) == "a3", "the current one stands in status only"
    ids = [message["messageId"] for message in [*task["history"], task["status"]["message"]]]
    assert len(set(ids)) == 5
    assert {message["taskId"] for message in task["history"]} == {task["id"]}
    (listed,) = (await agent.door().list())["tasks"]
    assert spoken(listed) == expected


@pytest.mark.parametrize(("length", "shown"), [(0, []), (1, ["a2"]), (3, ["a1", "u2", "a2"]), (4, None), (99, None)])
async def test_a2a_python_573_history_length_counts_from_the_end(
    agent: Agent, length: int, shown: list[str] | None
) -> None:
    task_id = await conversation(agent)
    task = await agent.door().get(task_id, historyLength=length)
    (listed,) = (await agent.door().list(historyLength=length))["tasks"]
    assert listed.get("history") == task.get("history")
    assert [text(message) for message in task.get("history", [])] == (
        ["u1", "a1", "u2", "a2"] if shown is None else shown
    )
    assert ("history" in task) is (length > 0)
    assert text(task["status"]["message"]) == "a3", "status is no history"


@pytest.mark.parametrize("length", [0, 1])
async def test_history_length_of_an_answer_and_of_a_first_frame(agent: Agent, length: int) -> None:
    door, configuration = agent.door(), {"historyLength": length}
    now = await door.send(say("u1"), now=True, configuration=configuration)
    async with agent.worker() as worker:
        more = asyncio.create_task(door.send(say("u2", taskId=now["id"]), configuration=configuration))
        lease = await worker.lease_one()
        while len((await door.get(now["id"])).get("history", [])) < 2:
            await asyncio.sleep(0.01)
        await worker.write(lease, direct("a1"))
        await worker.write(await worker.lease_one(), direct("a2"))
        ended = await more
    assert [text(message) for message in now.get("history", [])] == ["u1"][:length]
    assert [text(message) for message in ended.get("history", [])] == ["a1"][:length]
    params = {"message": say("u3"), "configuration": configuration}
    async with door.open("SendStreamingMessage", params) as stream:
        frame = await stream.next_frame()
        assert frame is not None
        assert (short(frame.data), frame.id) == ("task SUBMITTED", "1.1")
        assert [text(message) for message in frame.data["task"].get("history", [])] == ["u3"][:length]
        await door.cancel(frame.data["task"]["id"])
        assert [short(item) for item in await stream.rest()] == ["CANCELED"]
