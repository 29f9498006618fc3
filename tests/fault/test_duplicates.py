"""One message sent many times at once, over two replicas and both doors (resume-contract.md, scenario 15)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.contract.doors import Door, DoorError, say, state
from tests.fault.conftest import Pair, register
from tests.support.calls import native_events
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker, status

Json = dict[str, Any]
SENDS = 50


@pytest.fixture
def agent(replicas: Pair) -> str:
    name = f"agent-{uuid4().hex[:8]}"
    register(replicas, name)
    return name


@pytest_asyncio.fixture
async def doors(replicas: Pair, agent: str) -> AsyncIterator[list[Door]]:
    """Both doors at both replicas."""
    doors = [Door(name, broker.base_url, agent, mint("a")) for broker in replicas for name in ("jsonrpc", "rest")]
    yield doors
    for door in doors:
        await door.http.aclose()


async def send(door: Door, message: Json, *, now: bool) -> tuple[str, str, bool]:
    """The task's id and state, and whether the answer is marked as a replay; an error's reason instead of the id."""
    method, path, options = door.request(
        "SendMessage", {"message": message, "configuration": {"returnImmediately": now}}
    )
    answer = await door.http.request(method, path, **options)
    replayed = answer.headers.get("waystation-replayed") == "true"
    try:
        task = door.result(answer)["task"]
    except DoorError as error:
        return error.reason, "", replayed
    return task["id"], state(task), replayed


@pytest.mark.parametrize("follows", [False, True], ids=["first-message", "follow-up"])
async def test_fifty_sends_of_one_message_are_one_turn(
    replicas: Pair, agent: str, doors: list[Door], follows: bool
) -> None:
    """Some of them wait for the turn's end, and some have another body, which is a conflict."""
    async with LeaseWorker(replicas[1].base_url, agent) as worker:
        message, changed = say("go"), {"parts": [{"text": "something else"}]}
        paused = ""
        if follows:
            paused = (await doors[0].send(say("first"), now=True))["id"]
            await worker.write(await worker.lease_one(), status("INPUT_REQUIRED"))
            message["taskId"] = paused
        first = asyncio.create_task(send(doors[0], message, now=False))
        others = [
            asyncio.create_task(
                send(doors[number % 4], message | (changed if number % 5 == 0 else {}), now=number % 3 > 0)
            )
            for number in range(1, SENDS)
        ]
        lease = await worker.lease_one()
        assert await worker.lease(wait=0) == []
        await worker.write(lease, status("COMPLETED"))
        answers = [await first, *[await other for other in others]]
    tasks = [answer for answer in answers if answer[0] != "IDEMPOTENCY_CONFLICT"]
    assert {task for task, _, _ in tasks} == {lease["taskId"]}
    assert not follows or lease["taskId"] == paused
    assert Counter(replayed for _, _, replayed in tasks)[False] == 1, "all but one are marked as replays"
    waited = [answer[1] for number, answer in enumerate(answers) if number % 3 == 0 and answer in tasks]
    assert set(waited) == {"COMPLETED"}, "each in its own wait mode"
    log = await native_events(doors[0].http, lease["taskId"])
    sent = [event["kind"] for event in log if event["kind"] in ("task.submitted", "message.user", "turn.started")]
    assert sent == ["task.submitted", "turn.started", "message.user", "turn.started"][: 4 if follows else 2]
    assert (await doors[0].list())["totalSize"] == 1
