"""The worker SDK on a real broker while processes die: the worker, the gateway, and the orderly end of a worker."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from waystation_worker import Context, Worker

from app.ledger.migrations import migrate
from tests.integration import worker_sdk as agents
from tests.integration.worker_sdk import Client, WorkerProcess, artifacts, chunks, said, state, states, working
from tests.interop.environments import CLIENTS, EnvironmentMissingError, python_environment
from tests.support.broker import BrokerProcess
from tests.support.postgres import OwnPostgres
from tests.support.tokens import worker_token

AGENT = "x"
StartWorker = Callable[..., WorkerProcess]


@pytest_asyncio.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Client]:
    broker.register_agent(AGENT, leaseSeconds=1, retry={"maxAttempts": 5, "backoffSeconds": 0})
    async with Client(broker.base_url, AGENT) as client:
        yield client


@pytest.fixture
def start_worker(broker: BrokerProcess, tmp_path: Path) -> Iterator[StartWorker]:
    """``start_worker("module:target")``: a worker process on ``broker``, ended with the test."""
    started: list[WorkerProcess] = []

    def start(target: str, **options: str) -> WorkerProcess:
        log = tmp_path / f"worker-{len(started)}.log"
        started.append(WorkerProcess(broker.base_url, AGENT, target, log, **options))
        return started[-1]

    yield start
    for worker in started:
        worker.close()


def worker_for(broker: BrokerProcess) -> Worker:
    return Worker(broker.base_url, worker_token("a", AGENT), grace_seconds=5)


def has_chunks(number: int) -> Callable[[dict[str, Any]], bool]:
    """At least ``number`` chunks are there, and the task is still being worked on."""

    def condition(task: dict[str, Any]) -> bool:
        assert state(task) != "COMPLETED", "too fast for this test"
        return any(len(artifact["parts"]) >= number for artifact in task.get("artifacts", []))

    return condition


async def begun(client: Client, task_id: str) -> None:
    await client.until(task_id, lambda task: "message" in task["status"] and said(task) == "begun")


async def test_another_worker_finishes_what_a_killed_one_began(
    broker: BrokerProcess, client: Client, start_worker: StartWorker
) -> None:
    task = await client.send("go")
    killed = start_worker("tests.integration.worker_sdk:tell_and_wait")
    await begun(client, task["id"])
    killed.process.kill()
    second = worker_for(broker)
    second.agent(AGENT)(agents.tell_and_wait)
    async with working(second):
        done = await client.ended(task["id"])
    assert (state(done), said(done)) == ("COMPLETED", "attempt 2")
    assert states(await client.events(task["id"])).count("worker:COMPLETED") == 1


async def test_a_worker_stopped_past_its_lease_writes_nothing_and_goes_on(
    broker: BrokerProcess, client: Client, start_worker: StartWorker
) -> None:
    task = await client.send("5000")
    stopped = start_worker("tests.integration.worker_sdk:count")
    await client.until(task["id"], lambda task: bool(artifacts(task)))
    stopped.process.send_signal(signal.SIGSTOP)
    second = worker_for(broker)

    @second.agent(AGENT)
    async def finish(ctx: Context) -> str:
        return f"attempt {ctx.attempt}"

    async with working(second):
        done = await client.ended(task["id"])
    before = await client.events(task["id"])
    stopped.process.send_signal(signal.SIGCONT)
    next_task = await client.ended((await client.send("3"))["id"])
    # the stopped worker's open poll may have been given an attempt as well
    assert (state(done), said(done)) in {("COMPLETED", "attempt 2"), ("COMPLETED", "attempt 3")}
    assert await client.events(task["id"]) == before, "the old worker wrote nothing more"
    assert (said(next_task), artifacts(next_task)) == ("counted", {"numbers": "0 1 2 "}), "and it works on"
    assert stopped.process.poll() is None


@pytest.mark.slow
async def test_a_killed_gateway_costs_no_chunk_and_doubles_none(broker: BrokerProcess, client: Client) -> None:
    broker.register_agent(AGENT)  # with leases longer than a restart
    worker = worker_for(broker)
    worker.agent(AGENT)(agents.count)
    async with working(worker):
        task = await client.send("200")
        for share in (10, 60, 110):
            await client.until(task["id"], has_chunks(share))
            broker.kill()
            broker.spawn()
            await asyncio.to_thread(broker.wait_ready)
        done = await client.ended(task["id"])
    assert (state(done), said(done)) == ("COMPLETED", "counted")
    log = await client.events(task["id"])
    assert chunks(log) == [f"{value} " for value in range(200)]
    assert states(log) == ["worker:WORKING", "worker:COMPLETED"], "claimed once"


@pytest.mark.slow
async def test_a_crashed_database_costs_no_chunk_and_doubles_none(
    own_postgres: OwnPostgres, start_broker: Callable[..., BrokerProcess]
) -> None:
    await migrate(own_postgres.dsn())
    broker = start_broker(own_postgres.dsn())
    broker.register_agent(AGENT)
    worker = worker_for(broker)
    worker.agent(AGENT)(agents.count)
    async with working(worker), Client(broker.base_url, AGENT) as client:
        task = await client.send("200")
        for share in (10, 60, 110):
            await client.until(task["id"], has_chunks(share))
            await own_postgres.kill()
            await own_postgres.resume()
        done = await client.ended(task["id"])
        log = await client.events(task["id"])
    assert (state(done), said(done)) == ("COMPLETED", "counted")
    assert chunks(log) == [f"{value} " for value in range(200)]
    assert states(log) == ["worker:WORKING", "worker:COMPLETED"], "claimed once"


async def test_a_waiting_task_outlives_gateway_and_worker(
    broker: BrokerProcess, client: Client, start_worker: StartWorker
) -> None:
    first = start_worker("stock_lookup:StockLookup")
    asked = await client.ended((await client.send("how many?"))["id"])
    assert state(asked) == "INPUT_REQUIRED"
    first.process.kill()
    broker.kill()
    broker.spawn()
    await asyncio.to_thread(broker.wait_ready)
    assert await client.task(asked["id"]) == asked
    start_worker("stock_lookup:StockLookup")
    await client.send("sku:A", taskId=asked["id"], contextId=asked["contextId"])
    done = await client.ended(asked["id"])
    assert (state(done), artifacts(done)) == ("COMPLETED", {"stock": "A:3"})


async def test_sigterm_lets_a_turn_end_and_takes_no_other(
    broker: BrokerProcess, client: Client, start_worker: StartWorker, tmp_path: Path
) -> None:
    """The turn outlasts its lease of one second, so the heartbeat goes on during the drain."""
    end = tmp_path / "end"
    task = await client.send(str(end))
    worker = start_worker("tests.integration.worker_sdk:until_told")
    await begun(client, task["id"])
    worker.process.send_signal(signal.SIGTERM)
    expiry = await client.lease_expiry(task["id"])
    other = await client.send(str(end))
    async with asyncio.timeout(20):
        while await client.lease_expiry(task["id"]) < expiry + 1.5:
            await asyncio.sleep(0.05)
    end.touch()
    assert await asyncio.to_thread(worker.process.wait, 15) == 0
    done = await client.task(task["id"])
    assert (state(done), said(done)) == ("COMPLETED", "in time")
    assert (await client.events(task["id"]))[-1]["attempt"] == 1
    second = worker_for(broker)
    second.agent(AGENT)(agents.until_told)
    async with working(second):
        done = await client.ended(other["id"])
    log = await client.events(other["id"])
    assert state(done) == "COMPLETED"
    assert log[-1]["attempt"] == 1, "if the first worker was given it at all, it gave it back"


async def test_a_second_signal_gives_back_at_once(
    broker: BrokerProcess, client: Client, start_worker: StartWorker
) -> None:
    task = await client.send("go")
    worker = start_worker("tests.integration.worker_sdk:tell_and_wait")
    await begun(client, task["id"])
    for _ in range(2):
        worker.process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.2)
    assert await asyncio.to_thread(worker.process.wait, 15) == 0
    second = worker_for(broker)

    @second.agent(AGENT)
    async def attempt(ctx: Context) -> str:
        return f"attempt {ctx.attempt}"

    async with working(second):
        done = await client.ended(task["id"])
    assert said(done) == "attempt 1", "a release does not count"


@pytest.mark.interop
@pytest.mark.slow
async def test_an_executor_on_the_oldest_supported_sdk(client: Client, start_worker: StartWorker) -> None:
    try:
        python = await asyncio.to_thread(python_environment, "python-1.1.0", CLIENTS / "requirements-1.1.0.txt")
    except EnvironmentMissingError as missing:
        pytest.skip(str(missing))
    start_worker("stock_lookup:StockLookup", python=str(python))
    asked = await client.ended((await client.send("how many?"))["id"])
    assert state(asked) == "INPUT_REQUIRED"
    await client.send("sku:A", taskId=asked["id"], contextId=asked["contextId"])
    done = await client.ended(asked["id"])
    assert (state(done), artifacts(done)) == ("COMPLETED", {"stock": "A:3"})
