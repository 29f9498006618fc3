"""Leasing over a real socket: what a lease says, who gets it, how long a poll waits (native-api.md, Workers)."""

import asyncio
import re
import time
from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.integration.native.conftest import client
from tests.support.broker import BrokerProcess
from tests.support.calls import get_task, native_events, reason, send, user_message, violations
from tests.support.tokens import bearer, mint, worker_token
from tests.support.worker import LeaseWorker, artifact, status

EXTENSION = "https://waystation.dev/ext/resume/v1"


async def test_a_lease_carries_everything_the_worker_needs(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker
) -> None:
    sent = await send(user, agent, "do it")
    lease = await worker.lease_one()
    assert lease["taskId"] == sent["id"]
    assert lease["contextId"] == sent["contextId"]
    assert (lease["tenant"], lease["attempt"], lease["turn"], lease["priority"]) == ("a", 1, 1, 5)
    assert lease["fence"] >= 1
    assert lease["lastSeq"] == 3
    assert lease["message"]["parts"] == [{"text": "do it"}]
    assert (lease["message"]["taskId"], lease["message"]["contextId"]) == (sent["id"], sent["contextId"])
    assert lease["task"]["id"] == sent["id"]
    assert lease["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert lease["task"]["history"] == [lease["message"]]
    read = await get_task(user, agent, sent["id"])
    read["metadata"][EXTENSION].pop("lastSeq")
    assert lease["task"] == read, "made without a read, and the same"
    assert (lease["priorMessages"], lease["answers"], lease["effects"]) == ([], [], [])
    assert "deadlineAt" not in lease
    assert re.fullmatch(r"[A-Za-z0-9_-]+", lease["leaseId"])
    held = datetime.fromisoformat(lease["expiresAt"]) - datetime.fromisoformat(lease["queuedAt"])
    assert 29 < held.total_seconds() < 60
    events = await native_events(user, sent["id"])
    assert [event["kind"] for event in events] == ["task.submitted", "turn.started", "status"]
    assert events[2]["actor"] == {"kind": "worker", "id": worker.worker_id}


async def test_the_senders_trace_goes_on(user: httpx.AsyncClient, agent: str, worker: LeaseWorker) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await send(user, agent, metadata={"traceparent": trace})
    assert (await worker.lease_one())["traceparent"] == trace
    await send(user, agent)
    assert "traceparent" not in await worker.lease_one()
    user.headers["traceparent"] = trace.replace("4bf9", "5bf9")
    await send(user, agent, metadata={"traceparent": trace, EXTENSION: "not the broker's"})
    assert (await worker.lease_one())["traceparent"] == trace.replace("4bf9", "5bf9")
    user.headers["traceparent"] = "no trace"
    await send(user, agent, metadata={EXTENSION: "not the broker's"})
    assert "traceparent" not in await worker.lease_one()


async def test_views(user: httpx.AsyncClient, agent: str, worker: LeaseWorker) -> None:
    sent = await send(user, agent)
    lease = await worker.lease_one()
    await worker.write(lease, artifact("A", "1", last=True), *[status("WORKING", f"step {n}") for n in range(25)])
    await worker.write(lease, status("INPUT_REQUIRED", "more?"))
    await send(user, agent, "more", taskId=sent["id"])
    light = await worker.lease_one()
    assert "artifacts" not in light["task"]
    assert len(light["task"]["history"]) == 20
    assert light["message"]["parts"] == [{"text": "more"}], "the turn's own message, not the task's first"
    assert light["turn"] == 2
    await worker.release(light)
    full = await worker.lease_one(taskView="full")
    marked = {EXTENSION: {"attempt": 1}}
    assert full["task"]["artifacts"] == [{"artifactId": "A", "parts": [{"text": "1"}], "metadata": marked}]
    assert len(full["task"]["history"]) > 20
    assert full["attempt"] == 1, "a release is not counted"


async def test_deadline_and_lease_seconds_show(
    shared_broker: BrokerProcess, user: httpx.AsyncClient, agent: str, worker: LeaseWorker
) -> None:
    shared_broker.register_agent(agent, deadlineSeconds=600)
    await send(user, agent)
    before = time.time()
    lease = await worker.lease_one(leaseSeconds=120)
    assert 110 < datetime.fromisoformat(lease["expiresAt"]).timestamp() - before < 130
    assert 590 < datetime.fromisoformat(lease["deadlineAt"]).timestamp() - before < 601


async def test_an_empty_poll_waits_as_long_as_it_was_told(worker: LeaseWorker) -> None:
    start = time.monotonic()
    assert await worker.lease(wait=0) == []
    assert time.monotonic() - start < 1
    start = time.monotonic()
    assert await worker.lease(wait=1) == []
    assert 0.9 < time.monotonic() - start < 4


async def test_a_waiting_poll_hears_of_a_task_at_once(user: httpx.AsyncClient, agent: str, worker: LeaseWorker) -> None:
    poll = asyncio.create_task(worker.lease(wait=30))
    await asyncio.sleep(0.5)  # let it wait
    assert not poll.done()
    start = time.monotonic()
    await send(user, agent)
    assert len(await poll) == 1
    assert time.monotonic() - start < 3


async def test_max_is_kept_and_the_rest_stays(user: httpx.AsyncClient, agent: str, worker: LeaseWorker) -> None:
    for _ in range(5):
        await send(user, agent)
    first = await worker.lease(3)
    second = await worker.lease(3)
    assert (len(first), len(second)) == (3, 2)
    assert len({lease["taskId"] for lease in first + second}) == 5


async def test_twenty_workers_and_one_task_make_one_lease(
    shared_broker: BrokerProcess, user: httpx.AsyncClient, agent: str
) -> None:
    workers = [LeaseWorker(shared_broker.base_url, agent) for _ in range(20)]
    polls = [asyncio.create_task(worker.lease(wait=2)) for worker in workers]
    sent = await send(user, agent)
    got = [lease for leases in await asyncio.gather(*polls) for lease in leases]
    assert [lease["taskId"] for lease in got] == [sent["id"]]
    await asyncio.gather(*(worker.http.aclose() for worker in workers))


async def test_many_pollers_are_all_served(shared_broker: BrokerProcess, user: httpx.AsyncClient, agent: str) -> None:
    workers = [LeaseWorker(shared_broker.base_url, agent) for _ in range(10)]
    polls = [asyncio.create_task(worker.lease(2, wait=20)) for worker in workers]
    sent = [await send(user, agent) for _ in range(20)]
    more = [asyncio.create_task(worker.lease(2, wait=20)) for worker in workers]
    got: set[str] = set()
    for poll in asyncio.as_completed([*polls, *more]):
        got |= {lease["taskId"] for lease in await poll}
        if len(got) == 20:
            break
    assert got == {task["id"] for task in sent}
    for poll in more:
        poll.cancel()
    await asyncio.gather(*more, *polls, return_exceptions=True)
    await asyncio.gather(*(worker.http.aclose() for worker in workers))


async def test_a_repeated_claim_id_answers_the_same_leases(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker
) -> None:
    for _ in range(3):
        await send(user, agent)
    claim = uuid4().hex
    first = await worker.lease(2, claimId=claim)
    again = await worker.lease(2, claimId=claim)
    assert sorted(lease["leaseId"] for lease in again) == sorted(lease["leaseId"] for lease in first)
    assert all(lease["message"] for lease in again)
    await worker.write(first[0], status("COMPLETED"))
    left = await worker.lease(2, claimId=claim)
    assert [lease["leaseId"] for lease in left] == [first[1]["leaseId"]], "only what still lives"
    others = await worker.lease(2, claimId=uuid4().hex)
    assert len(others) == 1


async def test_a_poller_that_has_gone_gives_its_leases_back(
    shared_broker: BrokerProcess, user: httpx.AsyncClient, agent: str, worker: LeaseWorker
) -> None:
    """Clients that go away in the moment a task comes: whoever polls next gets it, at its first attempt; only an answer
    that was on the wire before the client's FIN is lost, and its lease expires."""
    attempts: list[int] = []
    for _ in range(10):
        async with LeaseWorker(shared_broker.base_url, agent) as leaver:
            poll = asyncio.create_task(leaver.lease(wait=30, leaseSeconds=1))
            await asyncio.sleep(0.05)
            submit = asyncio.create_task(send(user, agent))
            await asyncio.sleep(0)
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
        sent = await submit
        lease = await worker.lease_one(wait=20)
        assert lease["taskId"] == sent["id"]
        attempts.append(lease["attempt"])
        await worker.write(lease, status("COMPLETED"))
    assert set(attempts) <= {1, 2}
    assert attempts.count(1) >= 5, attempts


async def test_pollers_that_go_leave_no_trace(shared_broker: BrokerProcess, agent: str, worker: LeaseWorker) -> None:
    metrics = bearer(mint("a", scope="metrics:read"))

    async def waiting() -> float:
        text = (await worker.http.get("/metrics", headers=metrics)).text
        return float(re.search(r"^waystation_pollers_waiting (\S+)$", text, re.MULTILINE).group(1))

    polls = [asyncio.create_task(worker.lease(wait=60)) for _ in range(50)]
    async with asyncio.timeout(20):
        while await waiting() < 50:
            await asyncio.sleep(0.05)
        for poll in polls:
            poll.cancel()
        while await waiting() > 0:
            await asyncio.sleep(0.05)
    await asyncio.gather(*polls, return_exceptions=True)


async def test_leases_of_a_shared_agent_are_of_all_tenants(
    shared_broker: BrokerProcess, user: httpx.AsyncClient, agent: str, worker: LeaseWorker
) -> None:
    async with client(shared_broker, mint("b")) as guest:
        await send(user, agent)
        await send(guest, agent)
        leases = await worker.lease(10)
        assert sorted(lease["tenant"] for lease in leases) == ["a", "b"]
        for lease in leases:
            await worker.write(lease, status("COMPLETED", "done"))


async def test_priority_goes_first(user: httpx.AsyncClient, agent: str, worker: LeaseWorker) -> None:
    for priority in (1, 9, 5):
        body = {
            "message": user_message(),
            "configuration": {"returnImmediately": True},
            "metadata": {"waystation": {"priority": priority}},
        }
        assert (await user.post(f"/agents/{agent}/a2a/message:send", json=body)).status_code == 200
    assert [(await worker.lease_one())["priority"] for _ in range(3)] == [9, 5, 1]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "workerId"),
        ({"workerId": ""}, "workerId"),
        ({"workerId": "w" * 129}, "workerId"),
        ({"workerId": "w", "max": 0}, "max"),
        ({"workerId": "w", "max": 101}, "max"),
        ({"workerId": "w", "max": "1"}, "max"),
        ({"workerId": "w", "waitSeconds": 61}, "waitSeconds"),
        ({"workerId": "w", "waitSeconds": -1}, "waitSeconds"),
        ({"workerId": "w", "leaseSeconds": 0.5}, "leaseSeconds"),
        ({"workerId": "w", "claimId": ""}, "claimId"),
        ({"workerId": "w", "taskView": "tiny"}, "taskView"),
    ],
)
async def test_bad_lease_requests(worker: LeaseWorker, body: dict[str, Any], field: str) -> None:
    answer = await worker.http.post(f"/v1/agents/{worker.agent}/leases", json=body)
    assert (answer.status_code, reason(answer)) == (400, "INVALID_ARGUMENT")
    assert set(violations(answer)) == {field}


async def test_who_may_lease(shared_broker: BrokerProcess, agent: str) -> None:
    """The scope, then the agent in the token's agents, owned by the token's tenant: all else is one NotFound."""
    refused = {
        "no scope": (mint("a", "w", "tasks:read", [agent]), 403),
        "a client": (mint("a"), 403),
        "no agents": (mint("a", "w", "worker:lease"), 404),
        "another agent": (worker_token("a", "other"), 404),
        "another tenant": (worker_token("b", agent), 404),
        "admin": (mint("a", "w", "admin agents:admin", [agent]), 403),
    }
    bodies: set[bytes] = set()
    for case, (token, code) in refused.items():
        async with LeaseWorker(shared_broker.base_url, agent, token=token) as stranger:
            answer = await stranger.http.post(f"/v1/agents/{agent}/leases", content=b"not even JSON")
            assert answer.status_code == code, (case, answer.text)
            if code == 404:
                bodies.add(answer.content)
    async with LeaseWorker(shared_broker.base_url, "unknown-agent") as stranger:
        answer = await stranger.http.post("/v1/agents/unknown-agent/leases", json={"workerId": "w"})
        assert answer.status_code == 404
        bodies.add(answer.content)
    assert len(bodies) == 1, "unknown and foreign are one body"
    async with LeaseWorker(shared_broker.base_url, agent, token="x.y.z") as stranger:
        assert (await stranger.http.post(f"/v1/agents/{agent}/leases", json={"workerId": "w"})).status_code == 401
