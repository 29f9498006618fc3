"""``PUT /v1/agents/{agent}/lanes/{tenant}[/{fairKey}]`` (native-api.md, Agents) over a real socket."""

import asyncio
from uuid import uuid4

import httpx
import pytest

from tests.integration.native.conftest import client
from tests.support.broker import BrokerProcess
from tests.support.calls import reason, send, violations
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker


async def test_the_owner_sets_the_shares_of_its_agent(admin: httpx.AsyncClient, agent: str) -> None:
    whole = await admin.put(f"/v1/agents/{agent}/lanes/b", json={"weight": 2.5, "maxRunning": 0, "unknownField": 1})
    assert whole.status_code == 200, whole.text
    assert whole.json() == {"agent": agent, "tenant": "b", "fairKey": "", "weight": 2.5, "maxRunning": 0}
    keyed = await admin.put(f"/v1/agents/{agent}/lanes/b/team%2F%C3%A4%20x", json={"weight": 3, "maxRunning": None})
    assert keyed.json() == {"agent": agent, "tenant": "b", "fairKey": "team/ä x", "weight": 3}


async def test_a_lanes_limit_stops_its_tenant_and_wakes_its_pollers(
    shared_broker: BrokerProcess, admin: httpx.AsyncClient, user: httpx.AsyncClient, agent: str, worker: LeaseWorker
) -> None:
    path = f"/v1/agents/{agent}/lanes/b"
    assert (await admin.put(path, json={"weight": 1, "maxRunning": 0})).status_code == 200, "before its first task"
    async with client(shared_broker, mint("b")) as guest:
        stopped = await send(guest, agent)
        mine = await send(user, agent)
        assert [lease["taskId"] for lease in await worker.lease(5, wait=0)] == [mine["id"]]
        poll = asyncio.create_task(worker.lease(5, wait=20))
        assert (await admin.put(path, json={"weight": 1})).status_code == 200
        assert [lease["taskId"] for lease in await asyncio.wait_for(poll, 10)] == [stopped["id"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "weight"),
        ({"weight": None}, "weight"),
        ({"weight": 0}, "weight"),
        ({"weight": -1}, "weight"),
        ({"weight": 1e-50}, "weight"),
        ({"weight": 1000.5}, "weight"),
        ({"weight": "1"}, "weight"),
        ({"weight": True}, "weight"),
        ({"weight": 1, "maxRunning": -1}, "maxRunning"),
        ({"weight": 1, "maxRunning": 1.5}, "maxRunning"),
        ({"weight": 1, "maxRunning": 2**31}, "maxRunning"),
        ([], ""),
        (None, ""),
    ],
)
async def test_bad_shares(admin: httpx.AsyncClient, agent: str, body: object, field: str) -> None:
    answer = await admin.put(f"/v1/agents/{agent}/lanes/b", json=body)
    assert (answer.status_code, reason(answer)) == (400, "INVALID_ARGUMENT")
    assert field in violations(answer)


async def test_whose_lanes_they_are_not(
    shared_broker: BrokerProcess, admin: httpx.AsyncClient, other_admin: httpx.AsyncClient, agent: str
) -> None:
    share = {"weight": 5}
    unknown = await admin.put(f"/v1/agents/{uuid4().hex}/lanes/a", json=share)
    assert unknown.status_code == 404
    for path in (f"/v1/agents/{agent}/lanes/b", f"/v1/agents/{agent}/lanes/a/k"):
        for body in (b'{"weight": 5}', b"{garbage"):
            foreign = await other_admin.put(path, content=body, headers={"Content-Type": "application/json"})
            assert (foreign.status_code, foreign.content) == (404, unknown.content), "shared with it, but not its own"
        async with client(shared_broker, mint("a", "u", "agents:read tasks:write admin")) as reader:
            assert (await reader.put(path, json=share)).status_code == 403
    for tenant in ("B", "a%00b", "a,b", "-", "b" * 64):
        assert (await admin.put(f"/v1/agents/{agent}/lanes/{tenant}", json=share)).status_code == 404
    long = await admin.put(f"/v1/agents/{agent}/lanes/b/{'k' * 257}", json=share)
    assert (long.status_code, set(violations(long))) == (400, {"fairKey"})
    await admin.delete(f"/v1/agents/{agent}")
    assert (await admin.put(f"/v1/agents/{agent}/lanes/b", json=share)).status_code == 404
