"""The worker SDK on a real broker: handlers, executors, cancel, retries. Nothing fails here but what is told to."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from waystation_worker import BrokerRefused, Context, RetryLater, TaskFailed, Worker

from tests.integration.worker_sdk import Client, artifacts, chunks, said, state, states, working
from tests.support.broker import ROOT, BrokerProcess
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import worker_token


@pytest.fixture(scope="module")
def broker(
    postgres_server: SharedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """One broker for the tests of this module, which all leave it standing."""
    name = run_sync(postgres_server.create_database(template_database))
    broker = BrokerProcess(postgres_server.dsn(name), tmp_path_factory.mktemp("broker") / "log")
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
        print(f"--- broker on port {broker.port}\n{broker.output()}")
        run_sync(postgres_server.drop_database(name))


@pytest.fixture
def agent(broker: BrokerProcess) -> str:
    """A new agent of this test's own."""
    name = f"x-{uuid4().hex[:12]}"
    broker.register_agent(name, retry={"maxAttempts": 3, "backoffSeconds": 0})
    return name


@pytest_asyncio.fixture
async def client(broker: BrokerProcess, agent: str) -> AsyncIterator[Client]:
    async with Client(broker.base_url, agent) as client:
        yield client


@pytest.fixture
def worker(broker: BrokerProcess, agent: str) -> Worker:
    return Worker(broker.base_url, worker_token("a", agent), grace_seconds=5)


def example(name: str, attribute: str) -> Any:
    """What is called ``attribute`` in a file of examples/, loaded anew."""
    spec = spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, attribute)


async def test_a_handler_completes_tasks(client: Client, agent: str, worker: Worker) -> None:
    @worker.agent(agent)
    async def handler(ctx: Context) -> dict[str, int]:
        await ctx.progress(f"looking for {ctx.text}")
        async with ctx.artifact("stock") as stock:
            await stock.write("A:")
            await stock.write("3")
        return {"found": 3}

    async with working(worker):
        task = await client.send("sku:A", wait=True)
    assert state(task) == "COMPLETED"
    assert task["status"]["message"]["parts"] == [{"data": {"found": 3}}]
    assert artifacts(task) == {"stock": "A:3"}
    log = await client.events(task["id"])
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    assert states(log)[-1] == "worker:COMPLETED"


async def test_require_input_and_the_next_turn(client: Client, agent: str, worker: Worker) -> None:
    turns: list[tuple[int, str]] = []

    @worker.agent(agent, full_task=True)
    async def handler(ctx: Context) -> str:
        turns.append((ctx.turn, ctx.text))
        if ctx.turn == 1:
            await ctx.require_input("Which SKU?")
        return f"{len(ctx.task['history'])} messages so far"

    async with working(worker):
        asked = await client.send("stock?", wait=True)
        assert (state(asked), said(asked)) == ("INPUT_REQUIRED", "Which SKU?")
        done = await client.send("sku:A", wait=True, taskId=asked["id"], contextId=asked["contextId"])
    assert (done["id"], state(done)) == (asked["id"], "COMPLETED")
    assert turns == [(1, "stock?"), (2, "sku:A")]
    assert said(done) == "3 messages so far"


@pytest.mark.parametrize("how", ["raises", "RetryLater"])
async def test_attempts_until_it_works(client: Client, agent: str, worker: Worker, how: str) -> None:
    @worker.agent(agent)
    async def handler(ctx: Context) -> str:
        if ctx.attempt < 3:
            raise RetryLater("not yet", delay_seconds=0) if how == "RetryLater" else RuntimeError("not yet")
        return f"attempt {ctx.attempt}"

    async with working(worker):
        task = await client.ended((await client.send("go"))["id"])
    assert (state(task), said(task)) == ("COMPLETED", "attempt 3")


async def test_attempts_until_there_is_none_left(client: Client, agent: str, worker: Worker) -> None:
    attempts: list[int] = []

    @worker.agent(agent)
    async def handler(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise RuntimeError("the shelf fell over")

    async with working(worker):
        task = await client.ended((await client.send("go"))["id"])
    assert state(task) == "FAILED"
    assert "the shelf fell over" in said(task)
    assert attempts == [1, 2, 3]


async def test_task_failed_and_refused_events_are_final(client: Client, agent: str, worker: Worker) -> None:
    calls: list[str] = []

    @worker.agent(agent)
    async def handler(ctx: Context) -> None:
        calls.append(ctx.text)
        if ctx.text == "fail":
            raise TaskFailed("no such SKU")
        await ctx.emit(
            {"artifactUpdate": {"artifact": {"artifactId": "never", "parts": [{"text": "x"}]}, "append": True}}
        )

    async with working(worker):
        failed = await client.send("fail", wait=True)
        refused = await client.send("refuse", wait=True)
    assert (state(failed), said(failed)) == ("FAILED", "no such SKU")
    assert state(refused) == "FAILED"
    assert "ARTIFACT_UNKNOWN" in said(refused)
    assert calls == ["fail", "refuse"]


async def test_a_cancel_reaches_the_handler_at_once(client: Client, agent: str, worker: Worker) -> None:
    canceled_at: list[float] = []

    @worker.agent(agent)
    async def handler(ctx: Context) -> None:
        await ctx.progress("begun")
        try:
            await asyncio.Event().wait()
        finally:
            canceled_at.append(time.monotonic())

    async with working(worker):
        task = await client.send("go")
        await client.until(task["id"], lambda task: "message" in task["status"])
        await asyncio.sleep(0.5)  # so that the heartbeat's long poll is under way
        asked_at = time.monotonic()
        answer = await client.cancel(task["id"])
        answered_at = time.monotonic()
    assert answer.status_code == 200, answer.text
    assert state(answer.json()) == "CANCELED"
    assert canceled_at[0] - asked_at < 1
    assert answered_at - asked_at < 1.5, "long before the grace of three seconds is over"
    log = await client.events(task["id"])
    assert states(log)[-1] == "worker:CANCELED"
    assert "cancel.requested" in {event["kind"] for event in log}


async def test_a_worker_that_may_not_work_ends(broker: BrokerProcess, agent: str, client: Client) -> None:
    worker = Worker(broker.base_url, worker_token("b", agent))

    @worker.agent(agent)
    async def handler(_ctx: Context) -> None: ...

    with pytest.raises(BrokerRefused, match="404"):
        await worker.serve()
    worker.token = "not a token"
    with pytest.raises(BrokerRefused, match="401"):
        await worker.serve()


async def test_many_tasks_at_once(client: Client, agent: str, worker: Worker) -> None:
    @worker.agent(agent, concurrency=20)
    async def handler(ctx: Context) -> str:
        await ctx.progress("on it")
        return ctx.text

    async with working(worker):
        tasks = await asyncio.gather(*(client.send(f"n{number}", wait=True) for number in range(100)))
    assert sorted(said(task) for task in tasks) == sorted(f"n{number}" for number in range(100))


async def test_stock_lookup_unchanged(
    broker: BrokerProcess, agent: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = example("stock_lookup", "StockLookup")()
    worker = Worker.from_executor(executor, agent=agent, url=broker.base_url, token=worker_token("a", agent))
    async with working(worker):
        asked = await client.send("how many?", wait=True)
        assert (state(asked), said(asked)) == ("INPUT_REQUIRED", "Which SKU? Answer with sku:A")
        ids = {"taskId": asked["id"], "contextId": asked["contextId"]}
        again = await client.send("sku:B", wait=True, **ids)
        assert state(again) == "INPUT_REQUIRED"
        done = await client.send("sku:A", wait=True, **ids)
    assert (done["id"], state(done), artifacts(done)) == (asked["id"], "COMPLETED", {"stock": "A:3"})
    assert chunks(await client.events(asked["id"])) == ["A:", "3"]
    refused = await client.cancel(asked["id"])
    assert refused.status_code == 400, "TaskNotCancelable"
    assert state(await client.task(asked["id"])) == "COMPLETED"


async def test_release_review_unchanged(
    broker: BrokerProcess, agent: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = example("release_review", "ReleaseReview")()
    worker = Worker.from_executor(executor, agent=agent, url=broker.base_url, token=worker_token("a", agent))
    async with working(worker):
        asked = await client.send("please review", wait=True)
        assert state(asked) == "INPUT_REQUIRED"
        assert "service@1.2.3" in said(asked)
        done = await client.send("billing@2.1.0", wait=True, taskId=asked["id"], contextId=asked["contextId"])
        at_once = await client.send("review shop@1.0.4 now", wait=True)
    assert (state(done), state(at_once)) == ("COMPLETED", "COMPLETED")
    assert artifacts(done)["review"].startswith("billing 2.1.0 is a minor release")
    assert artifacts(at_once)["review"].startswith("shop 1.0.4 is a patch release")
    working_messages = [
        event["statusUpdate"]["status"]["message"]["parts"][0]["text"]
        for event in await client.events(at_once["id"])
        if "statusUpdate" in event and "message" in event["statusUpdate"]["status"]
    ]
    assert working_messages == ["Reviewing shop 1.0.4", "shop 1.0.4 is reviewed"]


async def test_the_echo_example(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.register_agent("echo")
    monkeypatch.setenv("WAYSTATION_URL", broker.base_url)
    monkeypatch.setenv("WAYSTATION_TOKEN", worker_token("a", "echo"))
    worker = example("echo", "worker")
    async with working(worker), Client(broker.base_url, "echo") as client:
        task = await client.send("hello", wait=True)
    assert said(task) == "You said: hello"
