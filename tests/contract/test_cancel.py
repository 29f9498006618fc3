"""CancelTask through both doors (resume-contract.md, Cancel against complete)."""

import asyncio
import time

import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import DoorError, say, state
from tests.support.worker import artifact, status

UNKNOWN = "01900000-0000-7000-8000-000000000000"


async def test_a_queued_task_is_canceled_at_once(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    assert state(await door.cancel(task["id"])) == "CANCELED"
    assert state(await door.get(task["id"])) == "CANCELED"
    async with agent.worker() as worker:
        assert await worker.lease(wait=0) == []


async def test_a_paused_task_is_canceled_at_once(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED"))
    assert state(await door.cancel(task["id"])) == "CANCELED"


async def test_a2a_python_413_a_terminal_task_is_not_cancelable(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    with pytest.raises(DoorError, match="TASK_NOT_CANCELABLE") as caught:
        await door.cancel(task["id"])
    assert caught.value.metadata == {"state": "TASK_STATE_COMPLETED", "lastSeq": "4"}
    assert state(await door.get(task["id"])) == "COMPLETED"


async def test_a_canceled_task_is_not_cancelable_again(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    await door.cancel(task["id"])
    with pytest.raises(DoorError, match="TASK_NOT_CANCELABLE") as caught:
        await door.cancel(task["id"])
    assert caught.value.metadata == {"state": "TASK_STATE_CANCELED", "lastSeq": "2"}


async def test_a_worker_that_stops_answers_the_cancel(agent: Agent) -> None:
    agent.register(cancelGraceSeconds=30)
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        cancel = asyncio.create_task(door.cancel(task["id"]))
        heard = (await worker.heartbeat(lease, waitSeconds=10)).json()["results"][0]
        assert heard["signal"] == "cancel"
        await worker.write(lease, status("CANCELED", "stopped"))
        assert state(await cancel) == "CANCELED"


async def test_a_worker_that_completes_first_wins(agent: Agent) -> None:
    agent.register(cancelGraceSeconds=30)
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        cancel = asyncio.create_task(door.cancel(task["id"]))
        await worker.heartbeat(lease, waitSeconds=10)
        await worker.write(lease, status("COMPLETED"))
        with pytest.raises(DoorError, match="TASK_NOT_CANCELABLE") as caught:
            await cancel
    assert caught.value.metadata == {"state": "TASK_STATE_COMPLETED", "lastSeq": "5"}


async def test_a_worker_that_does_not_hear_is_overruled_at_the_grace(agent: Agent) -> None:
    """resume-contract.md, scenario 22."""
    agent.register(cancelGraceSeconds=0.5)
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        start = time.monotonic()
        first, second = await asyncio.gather(door.cancel(task["id"]), door.cancel(task["id"]))
        assert (state(first), state(second)) == ("CANCELED", "CANCELED"), "the second call joins the wait"
        assert 0.45 < time.monotonic() - start < 5
        late = await worker.events(lease, artifact("x", "y"), status("COMPLETED"))
    assert (late.status_code, late.json()["error"]["details"][0]["reason"]) == (409, "TASK_TERMINAL")
    assert state(await door.get(task["id"])) == "CANCELED"


async def test_a_lease_given_back_while_a_cancel_waits_ends_it(agent: Agent) -> None:
    agent.register(cancelGraceSeconds=30)
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        cancel = asyncio.create_task(door.cancel(task["id"]))
        await worker.heartbeat(lease, waitSeconds=10)
        await worker.release(lease)
        assert state(await cancel) == "CANCELED"


@pytest.mark.parametrize("task_id", [UNKNOWN, "nonsense"])
async def test_an_unknown_task_is_not_found(agent: Agent, task_id: str) -> None:
    with pytest.raises(DoorError, match="TASK_NOT_FOUND"):
        await agent.door().cancel(task_id)


async def test_a2a_go_381_cancel_with_an_empty_body(agent: Agent) -> None:
    door = agent.door(name="rest")
    task = await door.send(say("go"), now=True)
    answer = await door.http.post(f"{door.base}/a2a/tasks/{task['id']}:cancel")
    assert (answer.status_code, state(answer.json())) == (200, "CANCELED")
