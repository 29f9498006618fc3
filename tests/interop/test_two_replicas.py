"""Two brokers on one database: send on one, stream on the other, cancel on either (architecture.md; resume-contract.md,
Transport).
"""

import pytest

from tests.interop.conftest import Agent
from tests.interop.messages import artifacts, say, short, shorts, state
from tests.support.worker import artifact, status

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("work_at", [0, 1])
async def test_send_on_one_and_stream_on_the_other(agent: Agent, work_at: int) -> None:
    task = await agent.user(replica=0).send(say("go"), returnImmediately=True)
    stream = agent.user(replica=1).subscribe(task["id"])
    assert short(await stream.next() or {}) == "task SUBMITTED"
    async with agent.worker(replica=work_at) as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("stock", "A:"))
        await worker.write(lease, artifact("stock", "3", append=True, last=True))
        await worker.write(lease, status("COMPLETED"))
    assert shorts(await stream.rest()) == ["WORKING", "stock=A:", "stock+3", "COMPLETED"]
    for replica in (0, 1):
        found = await agent.user(replica=replica).get(task["id"])
        assert (state(found), artifacts(found)) == ("COMPLETED", {"stock": "A:3"})


async def test_a_blocking_send_hears_of_the_work_at_the_other_replica(agent: Agent) -> None:
    call = agent.user(replica=0).start_send(say("go"))
    async with agent.worker(replica=1) as worker:
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    assert state((await call.rest())[0]["task"]) == "COMPLETED"


@pytest.mark.parametrize("cancel_at", [0, 1])
async def test_cancel_on_either_ends_the_stream_on_both(agent: Agent, cancel_at: int) -> None:
    call = agent.user(replica=0).stream(say("go"))
    task = (await call.next() or {})["task"]
    other = agent.user(replica=1).subscribe(task["id"])
    await other.next()
    async with agent.worker(replica=1 - cancel_at) as worker:
        lease = await worker.lease_one()
        canceling = agent.user(replica=cancel_at).start_cancel(task["id"])
        signals = (await worker.heartbeat(lease, waitSeconds=10)).json()["results"]
        assert [result["signal"] for result in signals] == ["cancel"]
        await worker.write(lease, status("CANCELED"))
    assert state((await canceling.rest())[0]) == "CANCELED"
    items = await call.rest()
    assert shorts(items) == ["WORKING", "WORKING", "CANCELED"]
    assert await other.rest() == items


async def test_a_stream_cut_on_one_goes_on_at_the_other(agent: Agent) -> None:
    call = agent.user(replica=0).stream(say("go"))
    task = (await call.next() or {})["task"]
    async with agent.worker(replica=0) as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("stock", "A:"))
        assert [short(await call.next() or {}) for _ in range(2)] == ["WORKING", "stock=A:"]
        await call.stop()
        rest = agent.user(replica=1).subscribe(task["id"])
        assert artifacts((await rest.next() or {})["task"]) == {"stock": "A:"}
        await worker.write(lease, artifact("stock", "3", append=True, last=True), status("COMPLETED"))
    assert shorts(await rest.rest()) == ["stock+3", "COMPLETED"]
