"""Pairs of replicas: one that the tests of a pytest worker share and leave alive, and one to be killed."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.broker import BrokerProcess
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import bearer, mint

Pair = tuple[BrokerProcess, BrokerProcess]
OPTIONS = {
    "WAYSTATION_MAX_STREAMS_PER_SUBJECT": "1000",
    "WAYSTATION_MAX_STREAMS_PER_TENANT": "1000",
    "WAYSTATION_EGRESS_ALLOW_CIDRS": "127.0.0.0/8",  # where the webhooks' receivers are
}


@pytest.fixture(scope="session")
def replicas(
    postgres_server: SharedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Two gateways on one database, left alive. Each test takes agents of its own."""
    name = run_sync(postgres_server.create_database(template_database))
    logs: Path = tmp_path_factory.mktemp("replicas")
    pair = tuple(BrokerProcess(postgres_server.dsn(name), logs / f"{n}.log", **OPTIONS) for n in (1, 2))
    first, second = pair
    try:
        for broker in pair:
            broker.start()
        yield first, second
    finally:
        for broker in pair:
            broker.close()
            print(f"--- broker on port {broker.port}\n{broker.output()}")
        run_sync(postgres_server.drop_database(name))


@pytest.fixture
def own_pair(database_url: str, start_broker: Callable[..., BrokerProcess]) -> Pair:
    """Two gateways on a database of this test's own, to be killed."""
    return start_broker(database_url, **OPTIONS), start_broker(database_url, **OPTIONS)


def register(pair: Pair, agent: str, **settings: Any) -> None:
    """Register an agent of tenant a, and wait until both replicas know it (native-api.md: within 1 s)."""
    pair[0].register_agent(agent, **settings)
    deadline = time.monotonic() + 10
    for broker in pair:
        url = f"{broker.base_url}/agents/{agent}/.well-known/agent-card.json"
        while httpx.get(url, headers=bearer(mint("a")), trust_env=False).status_code != 200:
            assert time.monotonic() < deadline, f"{url} has no card"
            time.sleep(0.02)
