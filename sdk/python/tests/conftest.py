"""Fixtures of the SDK's own tests: a scripted broker, and workers that end with the test."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from scripted_broker import Handling, ScriptedBroker, Serving, scripted_broker
from waystation_worker import Handler, Worker


@pytest_asyncio.fixture
async def broker() -> AsyncGenerator[ScriptedBroker]:
    async with scripted_broker() as broker:
        yield broker


@pytest.fixture
def serving() -> Serving:
    """``async with serving(worker) as stop``: the worker works inside the block and is stopped at its end."""

    @asynccontextmanager
    async def serve(worker: Worker) -> AsyncGenerator[asyncio.Event]:
        stop = asyncio.Event()
        service = asyncio.create_task(worker.serve(stop))
        try:
            yield stop
        finally:
            stop.set()
            await service

    return serve


@pytest.fixture
def handling(broker: ScriptedBroker, serving: Serving) -> Handling:
    """``async with handling(handler) as stop``: the same with one handler, for the agent ``x``."""

    def handle(handler: Handler, *, grace: float = 5, **options: Any) -> AbstractAsyncContextManager[asyncio.Event]:
        worker = Worker(broker.url, "token", grace_seconds=grace)
        worker.agent("x", **options)(handler)
        return serving(worker)

    return handle
