"""The stock lookup flow, word for word from the project's first issue, with each official client.

A client of tenant a asks an agent that another tenant owns; the gateway and the worker are killed with -9 while the
task waits, and everything goes on. Tenant b, with which the agent is shared too, sees nothing of it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.interop.conftest import OWNER, Agent, MakeClient, register
from tests.interop.messages import artifacts, say, state, text
from tests.interop.programs import Client, ClientError
from tests.interop.worker_process import WorkerProcess
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[Callable[[Agent, str], WorkerProcess]]:
    """``start_worker(agent, target)``: a worker process at the agent's first replica, ended after the test."""
    workers: list[WorkerProcess] = []

    def start(agent: Agent, target: str) -> WorkerProcess:
        log = tmp_path / f"worker-{len(workers)}.log"
        workers.append(WorkerProcess(agent.replicas[0].base_url, agent.name, OWNER, target, log))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


async def refused(user: Client, task_id: str) -> list[str]:
    """The reasons with which every operation on a task is refused to a user."""
    message = say("sku:A", taskId=task_id)
    calls = [user.get(task_id), user.cancel(task_id), user.send(message), user.subscribe(task_id).rest()]
    reasons: list[str] = []
    for call in calls:
        with pytest.raises(ClientError) as error:
            await call
        reasons.append(error.value.reason)
    return reasons


async def test_stock_lookup_survives_kill_9_of_gateway_and_worker(
    broker: BrokerProcess, make_client: MakeClient, start_worker: Callable[[Agent, str], WorkerProcess]
) -> None:
    register(broker, "stock")
    agent = Agent("stock", (broker,), make_client)
    worker = start_worker(agent, "examples.stock_lookup:StockLookup")
    user, stranger = agent.user("a"), agent.user("b")

    waiting = await user.send(say("What is in stock?"))
    assert state(waiting) == "INPUT_REQUIRED"
    assert "SKU" in text(waiting["status"]["message"])
    given_up = await user.send(say("What else is in stock?"))
    unknown = await user.send(say("sku:B"))

    broker.kill()
    worker.kill()
    broker.start()
    worker.start()

    found = await user.get(waiting["id"])
    assert found == waiting
    assert await refused(stranger, waiting["id"]) == ["TASK_NOT_FOUND"] * 4
    assert not (await stranger.list()).get("tasks")

    done = await user.send(say("sku:A", taskId=waiting["id"], contextId=waiting["contextId"]))
    assert (done["id"], done["contextId"], state(done)) == (waiting["id"], waiting["contextId"], "COMPLETED")
    assert artifacts(done) == {"stock": "A:3"}

    with pytest.raises(ClientError) as not_cancelable:
        await user.cancel(waiting["id"])
    assert not_cancelable.value.reason == "TASK_NOT_CANCELABLE"
    assert await user.get(waiting["id"]) == done

    assert state(await user.cancel(given_up["id"])) == "CANCELED"
    assert state(await user.get(given_up["id"])) == "CANCELED"
    still = await user.send(say("sku:B", taskId=unknown["id"]))
    assert (state(unknown), state(still)) == ("INPUT_REQUIRED", "INPUT_REQUIRED")

    for task in (waiting, given_up, unknown):
        assert set(await refused(stranger, task["id"])) == {"TASK_NOT_FOUND"}


async def test_append_false_on_the_second_chunk_replaces(
    agent: Agent, start_worker: Callable[[Agent, str], WorkerProcess]
) -> None:
    """adk-python#6686."""
    start_worker(agent, "tests.interop.executors:ReplacingStockLookup")
    task = await agent.user().send(say("sku:A"))
    assert (state(task), artifacts(task)) == ("COMPLETED", {"stock": "3"})


async def test_a_tenant_in_the_request_changes_nothing(agent: Agent) -> None:
    """a2a-dotnet#450: it is A2A's routing key, and never says whose task something is."""
    user, stranger = agent.user("a"), agent.user("b")
    task = await user.send(say("What is in stock?"), returnImmediately=True)
    assert await user.get(task["id"], tenant=agent.name) == task
    with pytest.raises(ClientError) as get:
        await stranger.get(task["id"], tenant=agent.name)
    with pytest.raises(ClientError) as cancel:
        await stranger.cancel(task["id"], tenant=agent.name)
    assert (get.value.reason, cancel.value.reason) == ("TASK_NOT_FOUND", "TASK_NOT_FOUND")

    headers = bearer(stranger.token) | {"A2A-Version": "1.0"}
    params = {"message": say("Mine"), "tenant": "a", "configuration": {"returnImmediately": True}}
    async with httpx.AsyncClient(headers=headers, trust_env=False) as http:
        rest = await http.post(f"{agent.url()}/a2a/message:send", json=params)
        call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"], "tenant": "a"}}
        foreign = await http.post(f"{agent.url()}/rpc", json=call)
    assert foreign.json()["error"]["code"] == -32001
    assert [found["id"] for found in (await stranger.list())["tasks"]] == [rest.json()["task"]["id"]]
    assert [found["id"] for found in (await user.list())["tasks"]] == [task["id"]]
