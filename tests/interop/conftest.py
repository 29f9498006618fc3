"""Fixtures of the interop tests: unmodified official A2A clients against real brokers over real sockets.

Every test runs once per client in ``CLIENTS``. Each client is a program in an environment that holds only the official
SDK (environments.py), driven over a pipe (programs.py); the agent's side is a worker that the test steers, or a worker
process. A client that this machine cannot have (no Node.js, no packages) skips with the reason, and fails where
CI=true.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.interop.environments import (
    INSTALL_SECONDS,
    EnvironmentMissingError,
    node_client,
    python_client,
    python_environment,
)
from tests.interop.programs import Client, ClientProgram
from tests.support.broker import BrokerProcess, free_port
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker

OWNER = "shop"
TENANTS = ("a", "b")
COMMANDS: dict[str, Callable[[], list[str]]] = {
    "python-1.1.0": lambda: python_client("1.1.0"),
    "python-1.3.0": lambda: python_client("1.3.0"),
    "js-1.3.0": node_client,
}
CLIENTS = [(program, binding) for program in COMMANDS for binding in ("JSONRPC", "HTTP+JSON")]
CLIENTS += [("python-1.1.0", "GRPC"), ("python-1.3.0", "GRPC")]
V0_3 = Path(__file__).parent / "v0_3" / "clients"
V0_3_COMMANDS: dict[str, Callable[[], list[str]]] = {
    "python-0.3.26": lambda: [
        str(python_environment("python-0.3.26", V0_3 / "requirements.txt")),
        str(V0_3 / "python_client.py"),
    ],
    "js-0.3.14": lambda: node_client(V0_3),
}
"""Clients of A2A 0.3, for the tests in ``v0_3``."""
MakeClient = Callable[[str, str], Client]


FIRST_USE_SECONDS = INSTALL_SECONDS + 120
"""The first test that wants an environment waits until it is installed."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called with all tests of the run, not only this folder's."""
    for item in items:
        if item.get_closest_marker("interop") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(FIRST_USE_SECONDS))


@dataclass(frozen=True)
class Agent:
    """An agent of the tenant ``shop``, shared with the tenants a and b, on one or two replicas."""

    name: str
    replicas: tuple[BrokerProcess, ...]
    make_client: MakeClient

    def url(self, replica: int = 0) -> str:
        return f"{self.replicas[replica].base_url}/agents/{self.name}"

    def user(self, tenant: str = "a", replica: int = 0) -> Client:
        """The official client of this test, with a token of ``tenant``."""
        return self.make_client(self.url(replica), mint(tenant, f"user-of-{tenant}"))

    def worker(self, replica: int = 0) -> LeaseWorker:
        return LeaseWorker(self.replicas[replica].base_url, self.name, OWNER)


@pytest.fixture(scope="session")
def programs() -> Iterator[Callable[[str], ClientProgram]]:
    """Starts each client program once per pytest worker, on first use."""
    started: dict[str, ClientProgram] = {}

    def program(name: str) -> ClientProgram:
        if name not in started:
            try:
                started[name] = ClientProgram((COMMANDS | V0_3_COMMANDS)[name]())
            except EnvironmentMissingError as missing:
                if os.environ.get("CI") == "true":
                    pytest.fail(f"{name}: {missing}")
                pytest.skip(f"{name}: {missing}")
        return started[name]

    yield program
    for running in started.values():
        running.close()


@pytest.fixture(params=CLIENTS, ids=["-".join(client) for client in CLIENTS])
def make_client(request: pytest.FixtureRequest, programs: Callable[[str], ClientProgram]) -> MakeClient:
    """``make_client(base_url, token)``: this run's official client."""
    name, binding = request.param
    program = programs(name)
    return lambda url, token: Client(program, binding, url, token)


@pytest.fixture(scope="session")
def replicas(
    postgres_server: SharedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Two brokers on one database, shared by all tests; their heartbeat is short, so that streams carry some."""
    name = run_sync(postgres_server.create_database(template_database))
    logs: Path = tmp_path_factory.mktemp("replicas")
    url = postgres_server.dsn(name)
    options = {"WAYSTATION_HEARTBEAT_SECONDS": "0.3", "WAYSTATION_GRPC_PORT": "0"}
    first, second = (BrokerProcess(url, logs / f"{n}.log", **options) for n in (1, 2))
    try:
        first.start()
        second.start()
        yield first, second
    finally:
        for broker in (first, second):
            broker.close()
            print(f"--- broker on port {broker.port}\n{broker.output()}")
        run_sync(postgres_server.drop_database(name))


@pytest.fixture
def broker(database_url: str, start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One broker of a test's own, whose gRPC port too is the same after a restart."""
    return start_broker(database_url, WAYSTATION_GRPC_PORT=str(free_port()))


@pytest.fixture
def agent(replicas: tuple[BrokerProcess, BrokerProcess], make_client: MakeClient) -> Agent:
    """A new agent of this test's own, known to both replicas."""
    name = f"agent-{uuid4().hex[:12]}"
    register(replicas[0], name)
    for replica in replicas:
        wait_for_card(f"{replica.base_url}/agents/{name}")
    return Agent(name, replicas, make_client)


def register(broker: BrokerProcess, name: str) -> None:
    """The grace is long, so that a busy machine does not decide whether a worker hears of a cancel in time."""
    broker.register_agent(name, OWNER, visibility="shared", sharedWith=list(TENANTS), cancelGraceSeconds=20)


def wait_for_card(url: str, seconds: float = 5) -> None:
    """Waits until a replica has heard of a new agent (native-api.md: within 1 s)."""
    deadline = time.monotonic() + seconds
    while httpx.get(f"{url}/.well-known/agent-card.json", trust_env=False).status_code != 200:
        assert time.monotonic() < deadline, f"{url} has no card"
        time.sleep(0.02)
