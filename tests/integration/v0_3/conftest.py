"""One broker per test module, an agent of its own per test, and the two doors of A2A 0.3 as a parameter."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.contract.doors import Door
from tests.contract.v0_3_doors import NAMES, V03Door
from tests.support.broker import BrokerProcess
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker


@pytest.fixture(scope="module")
def shared_broker(
    postgres_server: SharedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    name = run_sync(postgres_server.create_database(template_database))
    log: Path = tmp_path_factory.mktemp("broker") / "broker.log"
    process = BrokerProcess(postgres_server.dsn(name), log, WAYSTATION_EGRESS_ALLOW_CIDRS="127.0.0.0/8")
    process.start()
    yield process
    process.close()
    print(process.output())
    run_sync(postgres_server.drop_database(name))


class Agent:
    """One agent of tenant ``a``, with its clients of 0.3 and of 1.0, and its workers."""

    def __init__(self, broker: BrokerProcess, door: str, exits: AsyncExitStack) -> None:
        self.broker = broker
        self.id = f"agent-{uuid4().hex[:12]}"
        self._door = door
        self._exits = exits

    def register(self, **settings: Any) -> None:
        self.broker.register_agent(self.id, **settings)

    def door(self, tenant: str = "a", *, name: str | None = None, **claims: Any) -> V03Door:
        door = V03Door(name or self._door, self.broker.base_url, self.id, mint(tenant, **claims))
        self._exits.push_async_exit(door)
        return door

    def v1(self, tenant: str = "a") -> Door:
        """The same agent's JSON-RPC door of 1.0."""
        door = Door("jsonrpc", self.broker.base_url, self.id, mint(tenant))
        self._exits.push_async_exit(door)
        return door

    def worker(self) -> LeaseWorker:
        return LeaseWorker(self.broker.base_url, self.id)


@pytest.fixture(params=NAMES)
def door_name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture
async def agent(shared_broker: BrokerProcess, door_name: str) -> AsyncIterator[Agent]:
    """An agent that no other test knows, registered with the defaults."""
    async with AsyncExitStack() as exits:
        agent = Agent(shared_broker, door_name, exits)
        agent.register()
        yield agent
