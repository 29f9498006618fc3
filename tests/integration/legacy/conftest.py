"""Two replicas for all tests of a module, an agent of its own per test, and the older clients."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from tests.integration.legacy.clients import DEFAULT_AGENT
from tests.support.broker import BrokerProcess
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker


@pytest.fixture(scope="module")
def replicas(
    postgres_server: SharedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Two brokers on one database; ``DEFAULT_AGENT`` is registered and mounted at the root."""
    name = run_sync(postgres_server.create_database(template_database))
    logs: Path = tmp_path_factory.mktemp("legacy")
    pair = tuple(
        BrokerProcess(
            postgres_server.dsn(name),
            logs / f"{number}.log",
            WAYSTATION_DEFAULT_AGENT=DEFAULT_AGENT,
            WAYSTATION_HEARTBEAT_SECONDS="1.2",
        )
        for number in (1, 2)
    )
    for process in pair:
        process.start()
    pair[0].register_agent(DEFAULT_AGENT)
    yield pair[0], pair[1]
    for process in pair:
        process.close()
        print(process.output())
    run_sync(postgres_server.drop_database(name))


@pytest.fixture
def agent(replicas: tuple[BrokerProcess, BrokerProcess]) -> str:
    """A fresh agent of tenant a, which tenant b may use too."""
    name = f"agent-{uuid4().hex[:12]}"
    replicas[0].register_agent(name, visibility="shared", sharedWith=["*"], cancelGraceSeconds=0)
    return name


@pytest_asyncio.fixture
async def http(replicas: tuple[BrokerProcess, BrokerProcess], agent: str) -> AsyncIterator[httpx.AsyncClient]:
    """Tenant a's client on the first replica, at the agent's base URL."""
    base = f"{replicas[0].base_url}/agents/{agent}/"
    async with httpx.AsyncClient(base_url=base, headers=bearer(mint("a")), trust_env=False) as client:
        yield client


@pytest_asyncio.fixture
async def worker(replicas: tuple[BrokerProcess, BrokerProcess], agent: str) -> AsyncIterator[LeaseWorker]:
    """A worker on the second replica."""
    async with LeaseWorker(replicas[1].base_url, agent) as worker:
        yield worker
