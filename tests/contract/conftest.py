"""One broker per test module, an agent of its own per test, and the two doors as a parameter."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.contract.doors import Door
from tests.contract.every_door import DOORS
from tests.support.broker import BrokerProcess
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker

ENVIRONMENT: dict[str, str] = {}


@pytest.fixture(scope="module")
def shared_broker(
    postgres_server: SharedPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[BrokerProcess]:
    """A broker that the tests of a module share; ``BROKER_ENVIRONMENT`` of the module is added to its settings."""
    name = run_sync(postgres_server.create_database(template_database))
    log: Path = tmp_path_factory.mktemp("broker") / "broker.log"
    environment: dict[str, str] = getattr(request.module, "BROKER_ENVIRONMENT", {})
    process = BrokerProcess(postgres_server.dsn(name), log, **environment)
    process.start()
    yield process
    process.close()
    print(process.output())
    run_sync(postgres_server.drop_database(name))


class Agent:
    """One agent of tenant ``a`` on a running broker, with its clients and workers."""

    def __init__(self, broker: BrokerProcess, door: str) -> None:
        self.broker = broker
        self.id = f"agent-{uuid4().hex[:12]}"
        self.door_name = door
        self.exits = AsyncExitStack()
        """What ends with the test, the last first."""

    def register(self, **settings: Any) -> None:
        self.broker.register_agent(self.id, **settings)

    def door(self, tenant: str = "a", *, name: str | None = None, agent: str | None = None, **claims: Any) -> Door:
        """A client of ``tenant``; ``claims`` are of its token (subject, scope …)."""
        door = DOORS[name or self.door_name](self.broker, agent or self.id, mint(tenant, **claims))
        self.exits.push_async_exit(door)
        return door

    def worker(self) -> LeaseWorker:
        return LeaseWorker(self.broker.base_url, self.id)


@pytest.fixture(params=["jsonrpc", "rest"])
def door_name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture
async def agent(shared_broker: BrokerProcess, door_name: str) -> AsyncIterator[Agent]:
    """An agent that no other test knows, registered with the defaults."""
    agent = Agent(shared_broker, door_name)
    agent.register()
    async with agent.exits:
        yield agent
