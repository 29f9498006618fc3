"""SendMessage and GetTask through both doors (a2a-server.md, Unary semantics; known-faults.md by their names)."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from app.protocol.events import RESUME_EXTENSION
from tests.contract.conftest import Agent
from tests.contract.doors import DoorError, Json, say, state, text
from tests.support.worker import artifact, status

BROKER_ENVIRONMENT = {"WAYSTATION_BLOCKING_WAIT_SECONDS": "8"}
UNKNOWN = "01900000-0000-7000-8000-000000000000"


async def failure(agent: Agent, message: Json, **more: object) -> DoorError:
    with pytest.raises(DoorError) as caught:
        await agent.door().send(message, now=True, **more)
    return caught.value


async def test_a_new_message_makes_a_submitted_task(agent: Agent) -> None:
    message = say("hello")
    task = await agent.door().send(message, now=True)
    assert state(task) == "SUBMITTED"
    assert task["history"] == [message | {"taskId": task["id"], "contextId": task["contextId"]}]
    assert "artifacts" not in task
    assert task["status"]["timestamp"].endswith("Z")


async def test_what_the_broker_adds_stands_under_its_extension_only(agent: Agent) -> None:
    door = agent.door()
    first, second = await door.send(say("1"), now=True), await door.send(say("2"), now=True)
    for position, task in ((1, first), (2, second)):
        ours = task["metadata"].pop(RESUME_EXTENSION)
        assert task["metadata"] == {}
        assert (ours["lastSeq"], ours["queue"]["position"], ours["queue"]["priority"]) == (1, position, 5)


async def test_blocking_send_answers_with_the_end_of_its_turn(agent: Agent) -> None:
    async with agent.worker() as worker:
        answer = asyncio.create_task(agent.door().send(say("go")))
        lease = await worker.lease_one()
        await worker.write(lease, artifact("stock", "A:"))
        await worker.write(lease, artifact("stock", "3", append=True, last=True), status("COMPLETED", "done"))
        task = await answer
    assert (state(task), text(task["artifacts"][0]), text(task["status"]["message"])) == ("COMPLETED", "A:3", "done")


async def test_blocking_send_answers_at_a_pause(agent: Agent) -> None:
    async with agent.worker() as worker:
        answer = asyncio.create_task(agent.door().send(say("go")))
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which one?"))
        assert state(await answer) == "INPUT_REQUIRED"


async def test_both_senders_get_the_end_of_their_own_turn(agent: Agent) -> None:
    """resume-contract.md, scenario 26."""
    door = agent.door()
    async with agent.worker() as worker:
        first = asyncio.create_task(door.send(say("one")))
        lease = await worker.lease_one()
        second = asyncio.create_task(door.send(say("two", taskId=lease["taskId"])))
        while len((await door.get(lease["taskId"]))["history"]) < 2:
            await asyncio.sleep(0.01)
        ended = await worker.write(lease, artifact("one", "1"), status("COMPLETED"))
        assert (ended["turnEnded"], ended["state"]) == (True, "TASK_STATE_WORKING")
        assert state(await first) == "WORKING"
        assert not second.done()
        await worker.write(await worker.lease_one(), status("COMPLETED"))
        assert state(await second) == "COMPLETED"


async def test_a2a_python_952_return_immediately_does_not_wait(agent: Agent) -> None:
    """It is answered while a call that was made before it, and that nobody works for either, still waits."""
    door = agent.door()
    waiting = asyncio.ensure_future(door.send(say("wait")))
    while not (await door.list())["tasks"]:
        await asyncio.sleep(0.01)
    assert state(await door.send(say("go"), now=True)) == "SUBMITTED"
    assert not waiting.done()
    waiting.cancel()


async def test_context_of_the_client_is_kept_and_of_the_task_is_inferred(agent: Agent) -> None:
    """A2A#1249."""
    door = agent.door()
    task = await door.send(say("go", contextId="my context \u2028 ü"), now=True)
    assert task["contextId"] == "my context \u2028 ü"
    again = await door.send(say("more", taskId=task["id"]), now=True)
    assert (again["id"], again["contextId"]) == (task["id"], task["contextId"])


async def test_a2a_java_723_a_mismatched_context_is_refused_and_nothing_stored(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    error = await failure(agent, say("more", taskId=task["id"], contextId="another"))
    assert error.reason == "INVALID_PARAMS"
    assert len((await door.get(task["id"]))["history"]) == 1


async def test_a2a_rs_248_an_unknown_task_is_not_found_and_nothing_created(agent: Agent) -> None:
    for unknown in (UNKNOWN, "nonsense", "x" * 256, UNKNOWN.upper()):
        assert (await failure(agent, say("go", taskId=unknown))).reason == "TASK_NOT_FOUND"
    assert (await agent.door().list())["tasks"] == []


async def test_adk_python_4934_the_context_alone_starts_a_new_task(agent: Agent) -> None:
    door = agent.door()
    async with agent.worker() as worker:
        old = await door.send(say("go"), now=True)
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED"))
        new = await door.send(say("more", contextId=old["contextId"]), now=True)
        assert new["id"] != old["id"]
        assert state(await door.get(old["id"])) == "INPUT_REQUIRED"
        resumed = await door.send(say("this one", taskId=old["id"]), now=True)
    assert (resumed["id"], state(resumed)) == (old["id"], "WORKING")


async def test_a2a_go_438_a_terminal_task_takes_no_message(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    await door.cancel(task["id"])
    error = await failure(agent, say("more", taskId=task["id"]))
    assert error.reason == "UNSUPPORTED_OPERATION"
    assert error.metadata == {"state": "TASK_STATE_CANCELED", "lastSeq": "2"}
    assert state(await door.get(task["id"])) == "CANCELED"


@pytest.mark.parametrize(("length", "shown"), [(None, 3), (0, None), (2, 2), (50, 3)])
async def test_a2a_python_573_history_length(agent: Agent, length: int | None, shown: int | None) -> None:
    door = agent.door()
    task = await door.send(say("0"), now=True)
    for number in (1, 2):
        await door.send(say(str(number), taskId=task["id"]), now=True)
    history = (await door.get(task["id"], **({} if length is None else {"historyLength": length}))).get("history")
    assert (history and [text(message) for message in history]) == (shown and ["0", "1", "2"][-shown:])


async def test_a2a_rs_122_a_negative_history_length_is_invalid(agent: Agent) -> None:
    with pytest.raises(DoorError, match="INVALID_PARAMS"):
        await agent.door().get(UNKNOWN, historyLength=-1)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"messageId": "m", "role": "ROLE_USER", "parts": []},
        {"messageId": "m", "role": "ROLE_USER", "parts": [{}]},
        {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}]},
        {"messageId": "", "role": "ROLE_USER", "parts": [{"text": "x"}]},
        {"messageId": "m" * 257, "role": "ROLE_USER", "parts": [{"text": "x"}]},
        {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": 1}]},
        {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}] * 257},
    ],
)
async def test_an_invalid_message_is_refused(agent: Agent, message: Json) -> None:
    error = await failure(agent, message)
    assert error.reason == "INVALID_PARAMS"
    assert (await agent.door().list())["totalSize"] == 0


async def test_a2a_dotnet_450_a_tenant_in_the_body_owns_nothing(agent: Agent) -> None:
    task = await agent.door("a").send(say("go"), now=True, tenant="b")
    with pytest.raises(DoorError, match="NOT_FOUND"):
        await agent.door("b").call("GetTask", {"id": task["id"], "tenant": "a"})
    assert (await agent.door("a").get(task["id"], tenant="b"))["id"] == task["id"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"priority": 10}, "INVALID_PARAMS"),
        ({"priority": "5"}, "INVALID_PARAMS"),
        ({"runAt": "tomorrow"}, "INVALID_PARAMS"),
        ({"deadlineSeconds": 0}, "INVALID_PARAMS"),
        ({"fairKey": 5}, "INVALID_PARAMS"),
        ({"onBusy": "explode"}, "INVALID_PARAMS"),
        ({"onBusy": "interrupt"}, "NOT_SUPPORTED"),
        ("fast", "INVALID_PARAMS"),
    ],
)
async def test_bad_sending_options_are_refused(agent: Agent, options: object, reason: str) -> None:
    error = await failure(agent, say("go"), metadata={"waystation": options})
    assert error.reason == reason
    assert (await agent.door().list())["totalSize"] == 0


async def test_priority_goes_first_and_run_at_waits(agent: Agent) -> None:
    door = agent.door()
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    delayed = await door.send(say("later"), now=True, metadata={"waystation": {"runAt": later, "priority": 9}})
    low = await door.send(say("low"), now=True, metadata={"waystation": {"priority": 1}})
    high = await door.send(say("high"), now=True, metadata={"waystation": {"priority": 8}})
    async with agent.worker() as worker:
        leased = [(await worker.lease_one())["taskId"] for _ in range(2)]
        assert await worker.lease(wait=0) == []
    assert leased == [high["id"], low["id"]]
    assert state(await door.get(delayed["id"])) == "SUBMITTED"


async def test_on_busy_reject_refuses_a_message_to_a_working_task(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    error = await failure(agent, say("more", taskId=task["id"]), metadata={"waystation": {"onBusy": "reject"}})
    assert error.reason == "TASK_BUSY"
    assert len((await door.get(task["id"]))["history"]) == 1


async def test_options_of_a_first_message_are_refused_on_a_follow_up(agent: Agent) -> None:
    task = await agent.door().send(say("go"), now=True)
    error = await failure(agent, say("more", taskId=task["id"]), metadata={"waystation": {"priority": 9}})
    assert error.reason == "NOT_SUPPORTED"


async def test_tasks_of_another_agent_are_not_found(agent: Agent) -> None:
    other = Agent(agent.broker, agent.door_name)
    other.register()
    task = await agent.door().send(say("go"), now=True)
    stranger = agent.door(agent=other.id)
    for operation in (stranger.get, stranger.cancel):
        with pytest.raises(DoorError, match="TASK_NOT_FOUND"):
            await operation(task["id"])
    with pytest.raises(DoorError, match="TASK_NOT_FOUND"):
        await stranger.send(say("more", taskId=task["id"]), now=True)


async def test_unsharing_stops_new_sends_only(agent: Agent) -> None:
    agent.register(visibility="shared", sharedWith=["b"])
    guest, stranger = agent.door("b"), agent.door("c")
    task = await guest.send(say("go"), now=True)
    with pytest.raises(DoorError, match=r"^NOT_FOUND"):
        await stranger.send(say("go"), now=True)
    agent.register()

    async def send_until_refused() -> None:
        while True:  # the change shows within a second
            await guest.send(say("more"), now=True)

    with pytest.raises(DoorError, match=r"^NOT_FOUND"):
        await asyncio.wait_for(send_until_refused(), 5)
    assert (await guest.get(task["id"]))["id"] == task["id"]
    assert state(await guest.cancel(task["id"])) == "CANCELED"
    with pytest.raises(DoorError, match="TASK_NOT_FOUND"):
        await guest.get(UNKNOWN)
    with pytest.raises(DoorError, match=r"^NOT_FOUND"):
        await stranger.get(UNKNOWN)


async def test_the_extended_card_is_neither_declared_nor_configured(agent: Agent) -> None:
    with pytest.raises(DoorError, match="UNSUPPORTED_OPERATION"):
        await agent.door().call("GetExtendedAgentCard", {})
