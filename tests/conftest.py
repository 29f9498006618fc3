"""Fixtures of all tests: databases on the run's own PostgreSQL. See tests/support."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.broker import BrokerProcess
from tests.support.postgres import DSN_VARIABLE, OwnPostgres, SharedPostgres, run_sync

BIN_VARIABLE = "WAYSTATION_TEST_POSTGRES_BIN"
run_server: OwnPostgres | None = None
run_server_loop = asyncio.Runner(loop_factory=asyncio.new_event_loop)


def start_run_server() -> None:
    """Start the run's server once, in the one process that all others descend from."""
    global run_server
    if run_server is None and DSN_VARIABLE not in os.environ:
        run_server = OwnPostgres()
        run_server_loop.run(run_server.start())
        os.environ[DSN_VARIABLE] = run_server.dsn()
        os.environ[BIN_VARIABLE] = str(run_server.bin)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not config.option.collectonly:
        start_run_server()  # xdist's workers are started after this and inherit the environment


def pytest_unconfigure() -> None:
    global run_server
    if run_server is not None:
        run_server_loop.run(run_server.stop())
        run_server_loop.close()
        del os.environ[DSN_VARIABLE], os.environ[BIN_VARIABLE]
        run_server = None


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[dict[str, Any] | None]:
    """A worker's report may hold a lone surrogate (tests of bad input log some), which xdist cannot send."""
    report = yield
    return printable(report)


def printable(value: Any) -> Any:
    """``value`` with every character that has no UTF-8 form escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(printable(item) for item in value)
    return value


@pytest.fixture(scope="session")
def postgres_server() -> SharedPostgres:
    """The run's PostgreSQL. Shared: a test that stops or restarts a server takes ``own_postgres``."""
    start_run_server()
    return SharedPostgres(os.environ[DSN_VARIABLE], Path(os.environ[BIN_VARIABLE]))


@pytest.fixture(scope="session")
def template_database(postgres_server: SharedPostgres) -> str:
    """The name of the run's migrated template database."""
    return run_sync(postgres_server.template())


@pytest.fixture
def database_url(postgres_server: SharedPostgres, template_database: str) -> Iterator[str]:
    """The URL of a migrated database of this test's own."""
    name = run_sync(postgres_server.create_database(template_database))
    yield postgres_server.dsn(name)
    run_sync(postgres_server.drop_database(name))


@pytest.fixture
def empty_database_url(postgres_server: SharedPostgres) -> Iterator[str]:
    """The URL of an empty database of this test's own: not migrated."""
    name = run_sync(postgres_server.create_database())
    yield postgres_server.dsn(name)
    run_sync(postgres_server.drop_database(name))


@pytest_asyncio.fixture
async def own_postgres() -> AsyncIterator[OwnPostgres]:
    """A server of this test's own, to be killed and restarted; its databases are the test's to make."""
    server = OwnPostgres()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A temporary directory that every user may pass and write (tmp_path is its owner's only)."""
    path = Path(tempfile.mkdtemp(prefix="waystation-open-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., BrokerProcess]]:
    """``start_broker(database_url=…, NAME="value", …)``: a ready broker, by default on this test's ``database_url``.

    Environment variables by their full names, ``program`` as BrokerProcess has it. All end after the test; what they
    wrote is shown if it failed.
    """
    brokers: list[BrokerProcess] = []

    def start(database_url: str | None = None, **options: Any) -> BrokerProcess:
        url = database_url or request.getfixturevalue("database_url")
        brokers.append(BrokerProcess(url, tmp_path / f"broker-{len(brokers)}.log", **options))
        brokers[-1].start()
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()
        print(f"--- broker on port {broker.port}\n{broker.output()}")


@pytest.fixture
def broker(database_url: str, start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One broker process on ``database_url``."""
    return start_broker(database_url)


@pytest.fixture
def broker_pair(database_url: str, start_broker: Callable[..., BrokerProcess]) -> tuple[BrokerProcess, BrokerProcess]:
    """Two replicas on one database."""
    return start_broker(database_url), start_broker(database_url)
