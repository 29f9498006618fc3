"""A broker with one agent, for the tutorial."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint, worker_token


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[httpx.Client]:
    """Somebody of tenant ``a`` who speaks plain A2A: a token and a version header are all it takes."""
    broker.register_agent("stock")
    headers = bearer(mint("a", scope="tasks:read tasks:write tasks:cancel")) | {"A2A-Version": "1.0"}
    with httpx.Client(base_url=broker.base_url, headers=headers, timeout=40, trust_env=False) as client:
        yield client


@pytest.fixture
def worker(broker: BrokerProcess) -> Iterator[httpx.Client]:
    """A process that may lease the agent's tasks."""
    headers = bearer(worker_token("a", "stock"))
    with httpx.Client(base_url=broker.base_url, headers=headers, timeout=40, trust_env=False) as client:
        yield client
