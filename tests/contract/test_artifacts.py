"""Artifacts and messages as a client sees them through both doors (known-faults.md by their names)."""

import asyncio
import re

import httpx
import pytest

from app.protocol.events import RESUME_EXTENSION
from tests.contract.conftest import Agent
from tests.contract.doors import Json, say, text
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, artifact, status


async def leased(agent: Agent, worker: LeaseWorker) -> Json:
    await agent.door().send(say("go"), now=True)
    return await worker.lease_one()


async def shown(agent: Agent, lease: Json) -> list[Json]:
    return (await agent.door().get(lease["taskId"])).get("artifacts", [])


async def test_adk_python_6686_chunks_are_added_and_append_false_replaces(agent: Agent) -> None:
    async with agent.worker() as worker:
        lease = await leased(agent, worker)
        await worker.write(lease, artifact("stock", "A:"), artifact("stock", "3", append=True, last=True))
        assert [text(found) for found in await shown(agent, lease)] == ["A:3"]
        await worker.write(lease, artifact("stock", "B"))
        assert [text(found) for found in await shown(agent, lease)] == ["B"]


async def test_a2a_rs_295_a_repeated_id_is_one_artifact(agent: Agent) -> None:
    async with agent.worker() as worker:
        lease = await leased(agent, worker)
        await worker.write(lease, artifact("x", "1"), artifact("y", "2"), artifact("x", "3"))
        assert [(found["artifactId"], text(found)) for found in await shown(agent, lease)] == [("x", "3"), ("y", "2")]


async def test_a2a_python_735_append_merges_metadata(agent: Agent) -> None:
    async with agent.worker() as worker:
        lease = await leased(agent, worker)
        await worker.write(lease, artifact("x", "1", metadata={"a": 1, "b": 1}))
        await worker.write(lease, artifact("x", "2", append=True, metadata={"b": 2, "c": 3}))
        (found,) = await shown(agent, lease)
        assert found["metadata"] == {"a": 1, "b": 2, "c": 3, RESUME_EXTENSION: {"attempt": 1}}


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([artifact("x", "1", append=True)], "ARTIFACT_UNKNOWN"),
        ([artifact("x", "1", last=True), artifact("x", "2", append=True)], "ARTIFACT_CLOSED"),
    ],
)
async def test_a2a_python_1038_and_a2a_1231_a_refused_append_stores_nothing(
    agent: Agent, events: list[Json], reason: str
) -> None:
    async with agent.worker() as worker:
        lease = await leased(agent, worker)
        answer = await worker.events(lease, *events)
        assert (answer.status_code, answer.json()["error"]["details"][0]["reason"]) == (400, reason)
        assert await shown(agent, lease) == []


async def test_a2a_192_each_message_stands_once(agent: Agent) -> None:
    door = agent.door()
    async with agent.worker() as worker:
        lease = await leased(agent, worker)
        said = status("WORKING", "counting")
        await worker.write(lease, said, said, artifact("x", "y"))
        task = await door.get(lease["taskId"])
        assert ([text(m) for m in task["history"]], text(task["status"]["message"])) == (["go"], "counting")
        await worker.write(lease, status("COMPLETED", "done"))
    task = await door.get(lease["taskId"])
    assert ([text(m) for m in task["history"]], text(task["status"]["message"])) == (["go", "counting"], "done")


async def test_mastra_20205_a_message_to_a_working_task_makes_no_second_lease(agent: Agent) -> None:
    door = agent.door()
    async with agent.worker() as worker, agent.worker() as other:
        lease = await leased(agent, worker)
        for number in range(3):
            await door.send(say(str(number), taskId=lease["taskId"]), now=True)
        assert await other.lease(wait=0.3) == []
        await worker.write(lease, status("COMPLETED"))
        next_lease = await other.lease_one()
        assert (next_lease["turn"], text(next_lease["message"])) == (2, "0")
        assert await worker.lease(wait=0.3) == []


async def test_backend_ai_12680_more_tasks_make_no_more_metric_series(agent: Agent) -> None:
    door = agent.door()

    async def one(number: int) -> None:
        task = await door.send(say(str(number), contextId=f"c{number}"), now=True)
        await door.get(task["id"])
        await door.cancel(task["id"])

    await one(0)
    await series(agent)  # the scrape is a request too
    before = await series(agent)
    for start in range(1, 300, 50):
        await asyncio.gather(*(one(number) for number in range(start, start + 50)))
    assert await series(agent) == before


async def series(agent: Agent) -> set[str]:
    """Names and labels of everything at /metrics."""
    headers = bearer(mint("ops", scope="metrics:read"))
    async with httpx.AsyncClient(base_url=agent.broker.base_url, headers=headers, trust_env=False) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    return set(re.findall(r"^(\w+(?:{[^}]*})?) ", answer.text, re.MULTILINE))
