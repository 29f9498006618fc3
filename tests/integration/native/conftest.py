"""One broker for all tests of a module; each test has agents of its own, so they do not meet."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from tests.support.broker import BrokerProcess
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker

ADMIN = "agents:admin agents:read"


@pytest.fixture(scope="module")
def module_database_url(postgres_server: SharedPostgres, template_database: str) -> Iterator[str]:
    name = run_sync(postgres_server.create_database(template_database))
    yield postgres_server.dsn(name)
    run_sync(postgres_server.drop_database(name))


@pytest.fixture(scope="module")
def shared_broker(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    log: Path = tmp_path_factory.mktemp("broker") / "broker.log"
    broker = BrokerProcess(module_database_url, log)
    broker.start()
    yield broker
    broker.close()
    print(broker.output())


@pytest.fixture
def agent(shared_broker: BrokerProcess) -> str:
    """A fresh agent of tenant a, shared with all, that retries at once."""
    name = f"agent-{uuid4().hex[:12]}"
    retry = {"maxAttempts": 3, "backoffSeconds": 0, "maxBackoffSeconds": 0}
    shared_broker.register_agent(name, retry=retry, visibility="shared", sharedWith=["*"])
    return name


@pytest_asyncio.fixture
async def worker(shared_broker: BrokerProcess, agent: str) -> AsyncIterator[LeaseWorker]:
    async with LeaseWorker(shared_broker.base_url, agent) as one:
        yield one


@pytest_asyncio.fixture
async def admin(shared_broker: BrokerProcess) -> AsyncIterator[httpx.AsyncClient]:
    """Tenant a's administrator of agents."""
    async with client(shared_broker, mint("a", "admin", ADMIN)) as one:
        yield one


@pytest_asyncio.fixture
async def other_admin(shared_broker: BrokerProcess) -> AsyncIterator[httpx.AsyncClient]:
    """Tenant b's."""
    async with client(shared_broker, mint("b", "admin", ADMIN)) as one:
        yield one


@pytest_asyncio.fixture
async def user(shared_broker: BrokerProcess) -> AsyncIterator[httpx.AsyncClient]:
    """A client of tenant a."""
    async with client(shared_broker, mint("a")) as one:
        yield one


def client(broker: BrokerProcess, token: str) -> httpx.AsyncClient:
    headers = bearer(token) | {"A2A-Version": "1.0"}
    return httpx.AsyncClient(base_url=broker.base_url, headers=headers, timeout=60, trust_env=False)
