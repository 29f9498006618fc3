"""Every operation through every door while PostgreSQL is away (the cells of UNAVAILABLE; tests/fault has the rest)."""

import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from app.ledger.directory import MAX_AGE_SECONDS
from app.ledger.migrations import migrate
from app.operations.registry import BY_NAME
from tests.contract.conftest import Agent
from tests.contract.doors import Door, DoorError, Json
from tests.contract.every_door import DOORS
from tests.contract.scenarios import Scenario, worlds
from tests.contract.scenarios.access import GOOD
from tests.contract.scenarios.limits import why_not
from tests.contract.test_scenarios import ALL_SCOPES
from tests.support.broker import BrokerProcess
from tests.support.postgres import OwnPostgres


async def reason(door: Door, operation: str, params: Json) -> str:
    try:
        if BY_NAME[operation].streaming:
            async with door.open(operation, params):
                return "a stream"
        await door.call(operation, params)
    except DoorError as error:
        return error.reason
    return "an answer"


async def test_every_operation_is_unavailable_while_postgresql_is_away(
    own_postgres: OwnPostgres, start_broker: Callable[..., BrokerProcess]
) -> None:
    await migrate(own_postgres.dsn())
    broker = start_broker(database_url=own_postgres.dsn(), WAYSTATION_GRPC_PORT="0")
    agent = Agent(broker, "rest")
    agent.register()
    async with AsyncExitStack() as stack:
        stack.push_async_exit(agent.exits)
        world = await worlds.submitted(agent)
        read_at = time.monotonic()
        await own_postgres.kill(signal.SIGKILL)
        probe = agent.door()
        while time.monotonic() < read_at + MAX_AGE_SECONDS or await reason(probe, "ListTasks", {}) != "UNAVAILABLE":
            assert time.monotonic() < read_at + 20
        for name in DOORS:
            door = agent.door(name=name, scope=ALL_SCOPES)
            for operation, params in GOOD.items():
                row = Scenario("a new task at once", operation, "UNAVAILABLE")
                if why_not(row, name) is None:
                    assert await reason(door, operation, params(world)) == "UNAVAILABLE", (name, operation)
