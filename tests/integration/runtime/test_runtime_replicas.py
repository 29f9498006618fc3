"""Two replicas on one database: whatever happens at one is heard at the other at once."""

import asyncio
import time

import httpx

from tests.support.broker import BrokerProcess
from tests.support.calls import get_task, native_events, reason, send
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, status

Pair = tuple[BrokerProcess, BrokerProcess]
SOON = 0.9
"""Less than any poll: what comes sooner came by a hint."""


def user_of(broker: BrokerProcess) -> httpx.AsyncClient:
    headers = bearer(mint("a")) | {"A2A-Version": "1.0"}
    return httpx.AsyncClient(base_url=broker.base_url, headers=headers, timeout=30, trust_env=False)


async def test_a_change_to_an_agent_shows_on_both_within_a_second(broker_pair: Pair) -> None:
    one, two = broker_pair
    token = mint("a", "admin", "agents:admin agents:read")
    async with user_of(two) as user:
        assert (await user.get("/agents/x/a2a/tasks")).status_code == 404
        one.register_agent("x")
        changed = time.monotonic()
        while (await user.get("/agents/x/a2a/tasks")).status_code != 200:
            assert time.monotonic() - changed < 2
        async with httpx.AsyncClient(base_url=one.base_url, headers=bearer(token), trust_env=False) as admin:
            assert (await admin.delete("/v1/agents/x")).status_code == 204
        changed = time.monotonic()
        while (await user.get("/agents/x/a2a/tasks")).status_code != 404:
            assert time.monotonic() - changed < 2


async def test_send_lease_heartbeat_cancel_and_write_across_replicas(broker_pair: Pair) -> None:
    one, two = broker_pair
    one.register_agent("x")
    heard: list[float] = []
    signalled: list[float] = []
    async with LeaseWorker(two.base_url, "x") as worker, user_of(one) as user:
        for _ in range(5):
            poll = asyncio.create_task(worker.lease_one(wait=20))
            await asyncio.sleep(1.2)  # its first looks at the queue are over
            start = time.monotonic()
            sent = await send(user, "x")
            lease = await poll
            heard.append(time.monotonic() - start)
            assert lease["taskId"] == sent["id"]

            beat = asyncio.create_task(worker.heartbeat(lease, waitSeconds=20))
            await asyncio.sleep(0.2)
            start = time.monotonic()
            cancel = asyncio.create_task(user.post(f"/agents/x/a2a/tasks/{sent['id']}:cancel", json={}))
            assert (await beat).json()["results"][0]["signal"] == "cancel"
            signalled.append(time.monotonic() - start)

            await worker.write(lease, status("CANCELED"))
            assert (await cancel).json()["status"]["state"] == "TASK_STATE_CANCELED"
            assert (await get_task(user, "x", sent["id"]))["status"]["state"] == "TASK_STATE_CANCELED"
    assert min(heard) < SOON
    assert min(signalled) < SOON


async def test_a_cancel_that_waits_at_a_draining_replica_is_joined_at_the_other(broker_pair: Pair) -> None:
    one, two = broker_pair
    one.register_agent("x", cancelGraceSeconds=8)
    async with LeaseWorker(two.base_url, "x") as worker, user_of(one) as user, user_of(two) as other:
        sent = await send(user, "x")
        path = f"/agents/x/a2a/tasks/{sent['id']}:cancel"
        lease = await worker.lease_one()
        cancel = asyncio.create_task(user.post(path, json={}))
        assert (await worker.heartbeat(lease, waitSeconds=20)).json()["results"][0]["signal"] == "cancel"
        stopping = asyncio.create_task(asyncio.to_thread(one.terminate))
        cut = await cancel
        assert (cut.status_code, reason(cut)) == (503, "UNAVAILABLE")
        joined = await other.post(path, json={})
        assert joined.json()["status"]["state"] == "TASK_STATE_CANCELED"
        assert await stopping == 0
        kinds = [event["kind"] for event in await native_events(other, sent["id"])]
        assert kinds.count("cancel.requested") == 1, "the request to cancel stays"


async def test_a_cancel_with_a_short_grace_is_answered_by_the_replica_that_drains(broker_pair: Pair) -> None:
    """No 5xx in a deploy (reliability.md): the grace is over before the process has to be."""
    one, two = broker_pair
    one.register_agent("x", cancelGraceSeconds=2)
    async with LeaseWorker(two.base_url, "x") as worker, user_of(one) as user:
        sent = await send(user, "x")
        lease = await worker.lease_one()
        cancel = asyncio.create_task(user.post(f"/agents/x/a2a/tasks/{sent['id']}:cancel", json={}))
        assert (await worker.heartbeat(lease, waitSeconds=20)).json()["results"][0]["signal"] == "cancel"
        stopping = asyncio.create_task(asyncio.to_thread(one.terminate))
        answer = await cancel
        assert (answer.status_code, answer.json()["status"]["state"]) == (200, "TASK_STATE_CANCELED")
        assert await stopping == 0


async def test_a_lease_of_a_replica_that_died_goes_on_at_the_other(broker_pair: Pair) -> None:
    one, two = broker_pair
    one.register_agent("x")
    async with LeaseWorker(one.base_url, "x") as worker, user_of(two) as user:
        sent = await send(user, "x")
        lease = await worker.lease_one()
        one.kill()
        async with LeaseWorker(two.base_url, "x") as elsewhere:
            assert (await elsewhere.heartbeat(lease)).json()["results"][0]["ok"]
            await elsewhere.write(lease, status("COMPLETED", "done"))
        assert (await get_task(user, "x", sent["id"]))["status"]["state"] == "TASK_STATE_COMPLETED"
