"""An older client, unmodified, as a program of its own against two replicas (legacy-tasks.md)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.legacy.clients import DEFAULT_AGENT, Event, Json, NodeClient, NodeProgram, raw_events
from tests.support.broker import BrokerProcess
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker, artifact, status

Replicas = tuple[BrokerProcess, BrokerProcess]
INPUT = {"ask": ["ü", "漢", "\U0001f600", "\u2028"], "n": 1.5, "none": None}
UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest_asyncio.fixture
async def node() -> AsyncIterator[NodeProgram]:
    async with NodeProgram() as program:
        yield program


@pytest.fixture
def clients(replicas: Replicas, agent: str, node: NodeProgram) -> tuple[NodeClient, NodeClient]:
    """Tenant a's client on each replica."""
    one, other = (NodeClient(node, f"{replica.base_url}/agents/{agent}", mint("a")) for replica in replicas)
    return one, other


async def ended(worker: LeaseWorker, *events: Json) -> None:
    """One task's work."""
    lease = await worker.lease_one()
    for event in events:
        await worker.write(lease, event)


def failed(answer: Json) -> str:
    """What the client threw: ``HTTP N: `` and the first 200 characters."""
    assert list(answer) == ["error"], answer
    return answer["error"]


def states(events: list[Event]) -> list[tuple[str, str]]:
    return [(data["from"], data["to"]) for name, data in events if name == "state"]


async def test_discover(replicas: Replicas, agent: str, clients: tuple[NodeClient, NodeClient]) -> None:
    card = await clients[0].discover()
    assert card["id"] == agent
    assert {"name", "description", "url", "version", "defaultInputModes", "defaultOutputModes"} <= set(card)
    assert card["authentication"] == {"schemes": ["bearer", "api-key"]}
    assert card["capabilities"]["streaming"] is True
    assert card["capabilities"]["stateTransitionHistory"] is True
    assert isinstance(card["capabilities"]["pushNotifications"], bool)
    assert [(skill["id"], skill["name"], skill["description"]) for skill in card["skills"]] == [
        ("test", "test", "A test's skill.")
    ]


async def test_a_life_on_two_replicas(
    replicas: Replicas, agent: str, clients: tuple[NodeClient, NodeClient], worker: LeaseWorker
) -> None:
    """Submit on one, work and look on the other, stream on both; every shape of the dialect."""
    one, other = clients
    task = await one.submit("summarise", input=INPUT, metadata={"order": "Nº 7"})
    assert (task["skill"], task["state"], task["input"], task["output"]) == ("summarise", "submitted", INPUT, None)
    assert (task["artifacts"], task["metadata"]["order"]) == ([], "Nº 7")
    assert [entry["state"] for entry in task["history"]] == ["submitted"]
    assert task["createdAt"] == task["updatedAt"] == task["history"][0]["timestamp"]
    lease = await worker.lease_one()
    assert lease["message"]["parts"] == [{"data": INPUT}]
    assert lease["message"]["metadata"] == {"skill": "summarise", "order": "Nº 7"}
    live = one.stream(task["id"])
    told = [await live.next()]
    await worker.write(lease, progress("halb \u2028 \U0001f600", 0.5), progress("ganz", "all"))
    for kind in ("code", "deployment", "test-result", "report", "log", "poem", None):
        metadata = {"metadata": {"type": kind}} if kind else {}
        await worker.write(lease, artifact(f"a-{kind}", f"é {kind}", **metadata))
    plan = {"artifactId": "plan", "parts": [{"data": {"k": ["漢"]}, "mediaType": "application/vnd.plan+json"}]}
    await worker.write(lease, {"artifactUpdate": {"artifact": plan}}, status("COMPLETED"))
    told += await live.rest()
    for client in clients:
        assert await client.events(task["id"]) == told
    check_events(told, task["id"])
    check_task(await other.status(task["id"]), told)


def progress(text: str, value: Any) -> Json:
    event = status("WORKING", text)
    event["statusUpdate"]["metadata"] = {"progress": value}
    return event


def check_events(told: list[Event], task_id: str) -> None:
    assert states(told) == [("submitted", "working"), ("working", "completed")]
    assert all(data["taskId"] == task_id and data["timestamp"].endswith("Z") for _, data in told)
    for name, data in told:
        beside = {"state": {"from", "to"}, "progress": {"message", "progress"}, "artifact": {"artifact"}}[name]
        assert set(data) == {"taskId", "timestamp"} | beside
    said = [(data["message"], data["progress"]) for name, data in told if name == "progress"]
    assert said == [("halb \u2028 \U0001f600", 0.5), ("ganz", None)]
    shown = [dict(data["artifact"]) for name, data in told if name == "artifact"]
    assert [one["type"] for one in shown] == [
        *("code", "deployment", "test-result", "report", "log"),
        *("report", "report", "report"),
    ]
    first = next(data for name, data in told if name == "artifact")
    assert (shown[0].pop("createdAt"), shown[0].pop("metadata")["type"]) == (first["timestamp"], "code")
    assert shown[0] == {"id": "a-code", "type": "code", "mimeType": "text/plain", "content": "é code"}
    assert (shown[-1]["content"], shown[-1]["mimeType"]) == ({"k": ["漢"]}, "application/vnd.plan+json")


def check_task(task: Json, told: list[Event]) -> None:
    assert (task["state"], task["output"]) == ("completed", {"k": ["漢"]}), (
        "the last artifact, for nothing else was said"
    )
    assert task["artifacts"] == [data["artifact"] for name, data in told if name == "artifact"]
    assert [entry["state"] for entry in task["history"]] == ["submitted", "working", "completed"]
    changes = [data["timestamp"] for name, data in told if name == "state"]
    assert [entry["timestamp"] for entry in task["history"]] == [task["createdAt"], *changes]
    assert task["updatedAt"] == changes[-1]
    assert "message" not in task


@pytest.mark.parametrize(
    ("end", "word", "message", "output"),
    [
        (status("COMPLETED", "42 \U0001f600"), "completed", "42 \U0001f600", "42 \U0001f600"),
        (status("FAILED", "broken"), "failed", "broken", "broken"),
        (status("FAILED"), "failed", None, None),
        (status("REJECTED", "not mine"), "failed", "not mine", "not mine"),
        (status("REJECTED"), "failed", "The agent rejected the task", None),
        (status("INPUT_REQUIRED", "which one?"), "input-required", "which one?", None),
        (status("AUTH_REQUIRED"), "input-required", "The agent needs an authentication before it can go on", None),
        (status("AUTH_REQUIRED", "log in"), "input-required", "log in", None),
    ],
)
async def test_every_state(
    clients: tuple[NodeClient, NodeClient],
    worker: LeaseWorker,
    end: Json,
    word: str,
    message: str | None,
    output: str | None,
) -> None:
    one, other = clients
    task_id = (await one.submit(input="go"))["id"]
    await ended(worker, end)
    task = await other.status(task_id)
    assert (task["state"], task.get("message"), task["output"]) == (word, message, output)
    assert [entry["state"] for entry in task["history"]] == ["submitted", "working", word]
    stream = one.stream(task_id)
    assert states([await stream.next(), await stream.next()])[-1] == ("working", word)
    if word == "input-required":
        await other.cancel(task_id)  # the stream of a task that waits stays open
        assert states(await stream.rest()) == [("input-required", "canceled")]
    else:
        assert await stream.rest() == []


async def test_cancel(clients: tuple[NodeClient, NodeClient], worker: LeaseWorker) -> None:
    """Waiting and running tasks; a terminal one is 409, and the text says what it is in its first 200 characters."""
    one, other = clients
    waiting = (await one.submit())["id"]
    assert (await other.cancel(waiting))["state"] == "canceled"
    running = (await one.submit())["id"]
    await worker.lease_one()
    assert (await other.cancel(running))["state"] == "canceled"
    done = (await one.submit())["id"]
    await ended(worker, status("COMPLETED"))
    for task_id, state in ((waiting, "CANCELED"), (running, "CANCELED"), (done, "COMPLETED")):
        refused = failed(await one.cancel(task_id))
        assert refused.startswith("HTTP 409: ")
        assert f"The task is TASK_STATE_{state}" in refused
    assert states(await other.events(running)) == [("submitted", "working"), ("working", "canceled")]


async def test_errors_say_what_is_wrong(clients: tuple[NodeClient, NodeClient]) -> None:
    one = clients[0]
    for skill in ("", None, 7):
        assert failed(await one.submit(skill=skill)).startswith("HTTP 400: ")
        assert "skill: " in failed(await one.submit(skill=skill))
    for task_id in (UNKNOWN, "x", "a/b", "ü?#%2F"):
        for call in (one.status, one.cancel):
            assert failed(await call(task_id)).startswith('HTTP 404: {"error":{"code":404')
    assert failed(await one.submit(input="x" * 1_100_000)).startswith("HTTP 413: ")


async def test_tokens_and_tenants(replicas: Replicas, agent: str, node: NodeProgram) -> None:
    """Without a token 401; to another tenant a task is as unknown as one that never was."""
    base = f"{replicas[0].base_url}/agents/{agent}"
    mine, theirs, nobody = (NodeClient(node, base, token) for token in (mint("a"), mint("b"), None))
    task_id = (await mine.submit(input="secret"))["id"]
    for call in (nobody.submit(), nobody.status(task_id), nobody.cancel(task_id)):
        assert failed(await call).startswith("HTTP 401: ")
    for foreign, unknown in (
        (await theirs.status(task_id), await theirs.status(UNKNOWN)),
        (await theirs.cancel(task_id), await theirs.cancel(UNKNOWN)),
    ):
        assert failed(foreign).startswith("HTTP 404: ")
        assert foreign == unknown
    assert await theirs.stream(task_id).error() == "Stream failed: 404"
    assert await nobody.stream(task_id).error() == "Stream failed: 401"
    assert (await mine.status(task_id))["state"] == "submitted"


async def test_the_default_agent_at_the_root(replicas: Replicas, node: NodeProgram) -> None:
    """With and without a slash at the end of the base URL."""
    clients = [NodeClient(node, base, mint("a")) for base in (replicas[0].base_url, f"{replicas[1].base_url}/")]
    async with LeaseWorker(replicas[0].base_url, DEFAULT_AGENT) as worker:
        for client in clients:
            assert (await client.discover())["id"] == DEFAULT_AGENT
            task_id = (await client.submit(input="hi"))["id"]
            await ended(worker, status("COMPLETED", "bye"))
            assert [(await other.status(task_id))["output"] for other in clients] == ["bye", "bye"]
            assert states(await client.events(task_id))[-1] == ("working", "completed")


async def test_a_replica_is_killed_under_a_stream(
    replicas: Replicas, agent: str, worker: LeaseWorker, node: NodeProgram
) -> None:
    """The client comes back on the other one, from the start: the same events, and those that it has not seen."""
    doomed = BrokerProcess(replicas[0].database_url, replicas[0].log.with_name("doomed.log"))
    doomed.start()
    try:
        client = NodeClient(node, f"{doomed.base_url}/agents/{agent}", mint("a"))
        task_id = (await client.submit())["id"]
        lease = await worker.lease_one()
        await worker.write(lease, status("WORKING", "half"))
        stream = client.stream(task_id)
        seen = [await stream.next(), await stream.next()]
        doomed.kill()
        assert await stream.error() == "aborted"
    finally:
        doomed.close()
    await worker.write(lease, artifact("a", "x"), status("COMPLETED"))
    again = await NodeClient(node, f"{replicas[1].base_url}/agents/{agent}", mint("a")).events(task_id)
    assert again[:2] == seen
    assert [name for name, _ in again] == ["state", "progress", "artifact", "state"]
    assert await raw_events(replicas[0], agent, task_id) == again
