"""One broker with its gRPC door per test module, and an agent of its own per test."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.contract.doors import Door
from tests.contract.grpc_door import GrpcDoor
from tests.support.broker import BrokerProcess, card
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker

StartBroker = Callable[..., BrokerProcess]


class At:
    """An agent of tenant ``a``, shared with ``b``, at one broker."""

    def __init__(self, broker: BrokerProcess, agent: str) -> None:
        self.broker = broker
        self.agent = agent
        self.exits = AsyncExitStack()

    def door(self, tenant: str = "a", *, agent: str | None = None, **claims: Any) -> GrpcDoor:
        """A gRPC client of ``tenant``; ``claims`` are of its token (subject, scope …)."""
        door = GrpcDoor(self.broker.grpc_target, self.agent if agent is None else agent, mint(tenant, **claims))
        self.exits.push_async_callback(door.aclose)
        return door

    def rest(self, tenant: str = "a", **claims: Any) -> Door:
        """The same caller at the HTTP+JSON door."""
        door = Door("rest", self.broker.base_url, self.agent, mint(tenant, **claims))
        self.exits.push_async_callback(door.http.aclose)
        return door

    def worker(self) -> LeaseWorker:
        return LeaseWorker(self.broker.base_url, self.agent)


def start(start_broker: StartBroker, database_url: str | None = None, **environment: str) -> At:
    """A broker of a test's own with the agent ``clerk``."""
    broker = start_broker(database_url, **{"WAYSTATION_GRPC_PORT": "0"} | environment)
    register(broker, "clerk")
    return At(broker, "clerk")


def register(broker: BrokerProcess, agent: str, **capabilities: bool) -> None:
    """Shared with tenant b; takes every kind of content."""
    described = card(agent, pushNotifications=True, **capabilities) | {"defaultInputModes": ["*/*"]}
    broker.register_agent(agent, visibility="shared", sharedWith=["b"], card=described)


@pytest.fixture(scope="module")
def grpc_broker(
    postgres_server: SharedPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[BrokerProcess]:
    """Shared by the tests of a module; ``BROKER_ENVIRONMENT`` of the module is added to its settings.

    None of them may make it log an error.
    """
    name = run_sync(postgres_server.create_database(template_database))
    log: Path = tmp_path_factory.mktemp("broker") / "broker.log"
    environment = {"WAYSTATION_GRPC_PORT": "0"} | getattr(request.module, "BROKER_ENVIRONMENT", {})
    process = BrokerProcess(postgres_server.dsn(name), log, **environment)
    process.start()
    yield process
    process.close()
    print(process.output())
    assert '"level": "error"' not in process.output()
    run_sync(postgres_server.drop_database(name))


@pytest_asyncio.fixture
async def at(grpc_broker: BrokerProcess) -> AsyncIterator[At]:
    """An agent that no other test knows."""
    agent = f"agent-{uuid4().hex[:12]}"
    register(grpc_broker, agent)
    at = At(grpc_broker, agent)
    async with at.exits:
        yield at
