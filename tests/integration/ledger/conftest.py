"""A ledger on a fresh database for each test."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.ledger import Bench, open_bench


@pytest_asyncio.fixture
async def bench(database_url: str) -> AsyncIterator[Bench]:
    async with open_bench(database_url) as one:
        yield one
