"""Whatever dies in the middle of deliveries, each webhook hears of every event at least once, first in order (I9)."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from app.ledger.migrations import migrate
from tests.contract.doors import say
from tests.fault.check import violations
from tests.fault.clients import log_of, pending
from tests.fault.conftest import OPTIONS, Pair, register
from tests.fault.history import History, Hook
from tests.fault.hooks import FlakyReceiver
from tests.fault.replicas import Replicas
from tests.support.broker import BrokerProcess, card
from tests.support.postgres import OwnPostgres
from tests.support.tokens import CLIENT_SCOPE, mint
from tests.support.worker import LeaseWorker, artifact, status

AGENT = "herald"
TASKS = 30
CHUNKS = 3
OPEN_PER_REPLICA = 8
"""How many requests a replica has open at one receiver (docs/webhooks.md)."""


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[FlakyReceiver]:
    """It answers nobody until it is released."""
    one = FlakyReceiver(random.Random(4), silent=True)
    await one.start()
    yield one
    await one.stop()


async def hooked_tasks(replicas: Replicas, url: str, worker_url: str) -> list[Hook]:
    """Tasks that have ended, each with a webhook that knows of nothing yet."""
    hooks: list[Hook] = []
    for number in range(TASKS):
        config = {"id": f"c{number}", "url": url}
        body = {
            "message": say("go"),
            "configuration": {"returnImmediately": True, "taskPushNotificationConfig": config},
        }
        answer = await replicas.call("POST", f"/agents/{AGENT}/a2a/message:send", body)
        assert answer.status_code == 200, answer.text
        hooks.append(Hook(answer.json()["task"]["id"], f"c{number}", after=1))
    async with LeaseWorker(worker_url, AGENT) as worker:
        for lease in await worker.lease(max=TASKS):
            for number in range(CHUNKS):
                await worker.write(lease, artifact("x", f"{number};", append=number > 0))
            await worker.write(lease, status("COMPLETED"))
    return hooks


async def heard(replicas: Replicas, receiver: FlakyReceiver, hooks: list[Hook]) -> History:
    """What was heard when nothing is pending any more."""
    async with asyncio.timeout(90):
        while await pending(replicas):
            await asyncio.sleep(0.2)
    logs = {hook.task: await log_of(replicas, hook.task) for hook in hooks}
    assert len(logs) == TASKS
    return History(hooks=hooks, notified=list(receiver.notified), logs=logs)


def registered(pair: Pair) -> Replicas:
    register(pair, AGENT, card=card(AGENT, pushNotifications=True))
    return Replicas([one.base_url for one in pair], mint("a", scope=f"{CLIENT_SCOPE} push:write"))


@pytest.mark.slow
async def test_a_replica_is_killed_in_the_middle_of_deliveries(own_pair: Pair, receiver: FlakyReceiver) -> None:
    """The other one takes over what it held; and so with the other one."""
    async with registered(own_pair) as replicas:
        hooks = await hooked_tasks(replicas, receiver.url("/x"), own_pair[0].base_url)
        await receiver.until(lambda: receiver.open["/x"] == 2 * OPEN_PER_REPLICA)
        own_pair[0].kill()
        receiver.release()
        await receiver.until(lambda: len(receiver.notified) > 2 * OPEN_PER_REPLICA + 10)
        own_pair[0].spawn()
        await asyncio.to_thread(own_pair[0].wait_ready)
        own_pair[1].kill()
        history = await heard(replicas, receiver, hooks)
    assert violations(history) == []
    assert len({(one.task, one.seq) for one in history.notified}) < len(history.notified), "the kill has hit nobody"


@pytest.mark.slow
async def test_postgresql_restarts_in_the_middle_of_deliveries(
    own_postgres: OwnPostgres, start_broker: Callable[..., BrokerProcess], receiver: FlakyReceiver
) -> None:
    """What receivers take while it is away is recorded when it is back."""
    await migrate(own_postgres.dsn())
    pair = start_broker(own_postgres.dsn(), **OPTIONS), start_broker(own_postgres.dsn(), **OPTIONS)
    async with registered(pair) as replicas:
        hooks = await hooked_tasks(replicas, receiver.url("/x"), pair[0].base_url)
        await receiver.until(lambda: receiver.open["/x"] == 2 * OPEN_PER_REPLICA)
        await own_postgres.kill()
        receiver.release()
        await receiver.until(lambda: receiver.open["/x"] == 0)
        await own_postgres.resume()
        history = await heard(replicas, receiver, hooks)
    assert violations(history) == []
