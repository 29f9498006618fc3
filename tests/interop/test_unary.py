"""SendMessage, GetTask, ListTasks, CancelTask and the card with the official clients (a2a-server.md)."""

import asyncio

import pytest

from tests.interop.conftest import Agent
from tests.interop.messages import artifacts, say, state, text
from tests.interop.programs import Client, ClientError, Json
from tests.support.worker import LeaseWorker, artifact, status

pytestmark = pytest.mark.interop

INVALID = {"INVALID_PARAMS", "INVALID_ARGUMENT", "REQUEST_MALFORMED"}


async def paused(user: Client, worker: LeaseWorker, **fields: str) -> Json:
    """A task that waits for input."""
    call = user.start_send(say("go", **fields))
    await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which one?"))
    return (await call.rest())[0]["task"]


async def test_the_card_lists_both_doors_at_the_address_that_was_asked(agent: Agent) -> None:
    card = await agent.user(replica=1).card()
    doors = {(door["protocolBinding"], door["protocolVersion"]): door["url"] for door in card["supportedInterfaces"]}
    assert doors["JSONRPC", "1.0"] == f"{agent.url(1)}/rpc"
    assert doors["HTTP+JSON", "1.0"] == f"{agent.url(1)}/a2a"
    assert card["capabilities"]["streaming"] is True


async def test_a_blocking_send_answers_at_the_end_of_its_turn(agent: Agent) -> None:
    call = agent.user().start_send(say("go"))
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("stock", "A:"))
        await worker.write(lease, artifact("stock", "3", append=True, last=True))
        await worker.write(lease, status("COMPLETED", "done"))
    task = (await call.rest())[0]["task"]
    assert (state(task), artifacts(task)) == ("COMPLETED", {"stock": "A:3"})
    assert text(task["status"]["message"]) == "done"


async def test_return_immediately_answers_before_any_worker_comes(agent: Agent) -> None:
    task = await agent.user().send(say("go"), returnImmediately=True)
    assert state(task) == "SUBMITTED"
    assert [text(message) for message in task["history"]] == ["go"]


async def test_a_follow_up_needs_the_task_id_only(agent: Agent) -> None:
    """A2A#1249, adk-python#4934: contextId is inferred; a message with the contextId alone starts a new task."""
    user = agent.user()
    async with agent.worker() as worker:
        waiting = await paused(user, worker)
        other = await user.send(say("more", contextId=waiting["contextId"]), returnImmediately=True)
        assert (other["id"] == waiting["id"], other["contextId"]) == (False, waiting["contextId"])
        assert state(await user.get(waiting["id"])) == "INPUT_REQUIRED"

        await worker.write(await worker.lease_one(), status("COMPLETED"))
        call = user.start_send(say("this one", taskId=waiting["id"]))
        lease = await worker.lease_one()
        assert text(lease["message"]) == "this one"
        await worker.write(lease, status("COMPLETED"))
    task = (await call.rest())[0]["task"]
    assert (task["id"], task["contextId"], state(task)) == (waiting["id"], waiting["contextId"], "COMPLETED")


async def test_history_length_is_none_for_0_all_when_unset_and_the_last_n(agent: Agent) -> None:
    """a2a-python#573, a2a-rs#122, A2A#192."""
    user = agent.user()
    async with agent.worker() as worker:
        waiting = await paused(user, worker)
        call = user.start_send(say("this one", taskId=waiting["id"]))
        await worker.write(await worker.lease_one(), status("COMPLETED", "done"))
        await call.rest()
    whole = await user.get(waiting["id"])
    assert [text(message) for message in whole["history"]] == ["go", "which one?", "this one"]
    assert [text(m) for m in (await user.get(waiting["id"], historyLength=1))["history"]] == ["this one"]
    assert not (await user.get(waiting["id"], historyLength=0)).get("history")


async def test_list_pages_through_the_callers_tasks(agent: Agent) -> None:
    user = agent.user()
    sent = [(await user.send(say(f"task {n}"), returnImmediately=True))["id"] for n in range(3)]
    found: list[str] = []
    token = ""
    while True:
        page = await user.list(pageSize=2, **({"pageToken": token} if token else {}))
        assert page["totalSize"] == 3
        found += [task["id"] for task in page["tasks"]]
        if not (token := page.get("nextPageToken", "")):
            break
    assert found == sent[::-1]
    assert not (await agent.user("b").list()).get("tasks")


async def test_list_filters_by_context_and_state(agent: Agent) -> None:
    user = agent.user()
    async with agent.worker() as worker:
        waiting = await paused(user, worker)
    queued = await user.send(say("later"), returnImmediately=True)
    assert [t["id"] for t in (await user.list(contextId=queued["contextId"]))["tasks"]] == [queued["id"]]
    assert [t["id"] for t in (await user.list(status="TASK_STATE_INPUT_REQUIRED"))["tasks"]] == [waiting["id"]]


async def test_cancel_of_a_queued_task_is_final(agent: Agent) -> None:
    user = agent.user()
    task = await user.send(say("go"), returnImmediately=True)
    assert state(await user.cancel(task["id"])) == "CANCELED"
    with pytest.raises(ClientError) as refused:
        await user.cancel(task["id"])
    assert refused.value.reason == "TASK_NOT_CANCELABLE"
    async with agent.worker() as worker:
        assert await worker.lease(wait=0) == []


async def test_cancel_of_a_leased_task_is_told_to_the_worker_and_waits_for_it(agent: Agent) -> None:
    user = agent.user()
    task = await user.send(say("go"), returnImmediately=True)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        canceling = user.start_cancel(task["id"])
        signals = (await worker.heartbeat(lease, waitSeconds=10)).json()["results"]
        assert [result["signal"] for result in signals] == ["cancel"]
        await worker.write(lease, status("CANCELED", "stopped half way"))
        (canceled,) = await canceling.rest()
        late = await worker.events(lease, status("COMPLETED"))
    assert (state(canceled), text(canceled["status"]["message"])) == ("CANCELED", "stopped half way")
    assert (late.status_code, late.json()["error"]["details"][0]["reason"]) == (409, "TASK_TERMINAL")


async def test_terminal_tasks_take_no_message_and_no_cancel(agent: Agent) -> None:
    """a2a-python#413, a2a-go#438."""
    user = agent.user()
    task = await user.send(say("go"), returnImmediately=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    with pytest.raises(ClientError) as message:
        await user.send(say("more", taskId=task["id"]))
    with pytest.raises(ClientError) as cancel:
        await user.cancel(task["id"])
    assert (message.value.reason, cancel.value.reason) == ("UNSUPPORTED_OPERATION", "TASK_NOT_CANCELABLE")


async def test_unknown_tasks_are_not_found_and_nothing_is_created(agent: Agent) -> None:
    """a2a-rs#248."""
    user = agent.user()
    calls = [user.get("unknown"), user.cancel("unknown"), user.send(say("go", taskId="unknown"))]
    refused = await asyncio.gather(*calls, return_exceptions=True)
    assert [error.reason for error in refused if isinstance(error, ClientError)] == ["TASK_NOT_FOUND"] * 3
    assert not (await user.list()).get("tasks")


async def test_a_context_that_is_not_the_tasks_is_refused(agent: Agent) -> None:
    """a2a-java#723: nothing of the message is kept."""
    user = agent.user()
    async with agent.worker() as worker:
        waiting = await paused(user, worker)
    with pytest.raises(ClientError) as refused:
        await user.send(say("this one", taskId=waiting["id"], contextId="another"))
    assert refused.value.reason in INVALID
    assert await user.get(waiting["id"]) == waiting


async def test_the_same_message_twice_is_one_task(agent: Agent) -> None:
    """aws-samples/sample-autonomous-cloud-coding-agents#58; the same id with another text is refused."""
    user = agent.user()
    message = say("go")
    first = await user.send(message, returnImmediately=True)
    again = await user.send(message, returnImmediately=True)
    assert again["id"] == first["id"]
    with pytest.raises(ClientError):
        await user.send(message | {"parts": [{"text": "something else"}]}, returnImmediately=True)
    assert len((await user.list())["tasks"]) == 1
