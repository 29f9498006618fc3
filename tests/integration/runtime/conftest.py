"""A ledger with the wake-ups of one or two replicas, without HTTP."""

from collections.abc import AsyncIterator

import pytest_asyncio

from app.ledger.wakeups import Wakeups
from tests.support.ledger import Bench, open_bench


@pytest_asyncio.fixture
async def bench(database_url: str) -> AsyncIterator[Bench]:
    async with open_bench(database_url) as one:
        yield one


@pytest_asyncio.fixture
async def wakeups(database_url: str) -> AsyncIterator[Wakeups]:
    one = Wakeups(database_url)
    await one.start()
    assert await one.wait_connected(10)
    yield one
    await one.stop()
