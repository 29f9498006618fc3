"""A message queued behind a running turn, its two senders waiting at two replicas (resume-contract.md, scenario 26)."""

import asyncio
from uuid import uuid4

import pytest

from tests.contract.doors import Door, say, state, text
from tests.fault.conftest import Pair, register
from tests.support.calls import native_events
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker, artifact, status


@pytest.mark.parametrize("end", ["COMPLETED", "INPUT_REQUIRED"])
@pytest.mark.parametrize("names", [("jsonrpc", "rest"), ("rest", "jsonrpc")])
async def test_both_senders_get_the_end_of_their_own_turn(replicas: Pair, names: tuple[str, str], end: str) -> None:
    """Each replica hears from the other one of the turn that ended; a bare INPUT_REQUIRED is answered by the queued
    message."""
    agent = f"agent-{uuid4().hex[:8]}"
    register(replicas, agent)
    doors = [Door(name, broker.base_url, agent, mint("a")) for name, broker in zip(names, replicas, strict=True)]
    async with LeaseWorker(replicas[0].base_url, agent) as here, LeaseWorker(replicas[1].base_url, agent) as there:
        first = asyncio.create_task(doors[0].send(say("one")))
        lease = await there.lease_one()
        second = asyncio.create_task(doors[1].send(say("two", taskId=lease["taskId"])))
        async with asyncio.timeout(10):
            while len((await doors[0].get(lease["taskId"]))["history"]) < 2:
                await asyncio.sleep(0.01)
        assert not first.done()
        ended = await here.write(lease, artifact("one", "1"), status(end, "the first answer"))
        assert (ended["turnEnded"], ended["state"]) == (True, "TASK_STATE_WORKING")
        told = await asyncio.wait_for(first, 10)
        assert (state(told), text(told["artifacts"][0])) == ("WORKING", "1")
        assert not second.done(), "its turn has not even begun"

        lease = await here.lease_one()
        assert (text(lease["message"]), lease["turn"], lease["attempt"]) == ("two", 2, 1)
        assert not second.done()
        await there.write(lease, artifact("two", "2"), status("COMPLETED"))
        told = await asyncio.wait_for(second, 10)
        assert (state(told), [text(one) for one in told["artifacts"]]) == ("COMPLETED", ["1", "2"])
    log = await native_events(doors[0].http, lease["taskId"])
    assert [event["kind"] for event in log].count("turn.started") == 2
    for door in doors:
        await door.http.aclose()
