"""Nobody waits for a client that has left: a cancel's grace may be a day, and clients that time out ask again."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest
import pytest_asyncio
from starlette.requests import Request
from starlette.types import Message

from app.auth.caller import CallContext, Caller
from app.auth.handles import Handles
from app.auth.vault import Vault
from app.errors import Unavailable
from app.ledger.directory import AgentDirectory
from app.ledger.rows import Agent
from app.ledger.wakeups import Wakeups
from app.net.egress import Egress, EgressPolicy
from app.operations.agent_doors import AgentDoor
from app.operations.cancel_task import cancel_task
from app.operations.deps import Operations
from app.operations.send_message import send_message
from app.operations.served_cards import ServedCards
from app.protocol.models import CancelTaskRequest, SendMessageRequest, parse
from app.transports.call_context import authenticate
from app.transports.gateway import Gateway
from tests.contract.doors import say
from tests.support.ledger import QUICK, Bench

LONG = 600.0
CALLER = Caller("a", "u1", frozenset(), frozenset(), math.inf)
CONFIG = {
    "reply": "task",
    "idempotency": "message_id",
    "onBusy": "enqueue",
    "leaseSeconds": 30,
    "cancelGraceSeconds": LONG,
    "retry": {"maxAttempts": 3, "backoffSeconds": 0, "maxBackoffSeconds": 0},
}
DOOR = AgentDoor(Agent("x", "a", CONFIG, 1, datetime.now(UTC)), may_send=True)


@pytest_asyncio.fixture
async def ops(bench: Bench, wakeups: Wakeups) -> AsyncIterator[Operations]:
    directory = AgentDirectory(bench.db, wakeups)
    yield Operations(
        bench.db,
        wakeups,
        directory,
        Handles([b"x" * 32]),
        ServedCards([b"x" * 32]),
        blocking_wait_seconds=LONG,
        poll_seconds=0.1,
        egress=Egress(EgressPolicy()),
        vault=Vault([b"x" * 32]),
    )
    directory.close()


async def gone() -> bool:
    return True


Wait = Callable[[CallContext], Awaitable[object]]


async def check(wait: Wait) -> None:
    """It waits for a client that is there, and ends soon for one that is not."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await wait(CallContext(CALLER))
    async with asyncio.timeout(5):
        await wait(CallContext(CALLER, gone=gone))


async def test_a_cancel_goes_on_without_its_client(bench: Bench, ops: Operations) -> None:
    settings = replace(QUICK, cancel_grace_seconds=LONG)
    task_id = (await bench.submit(settings=settings)).task_id
    await bench.claim_one()

    async def wait(ctx: CallContext) -> None:
        try:
            await cancel_task(ops, ctx, DOOR, CancelTaskRequest(id=str(task_id)))
        except Unavailable:
            assert await ctx.gone()

    await check(wait)
    assert (await bench.kinds(task_id))[-1] == "cancel.requested"


async def test_a_blocking_send_ends_without_its_client(ops: Operations) -> None:
    request = parse(SendMessageRequest, {"message": say("go")})
    await check(lambda ctx: send_message(ops, ctx, DOOR, request))


async def test_a_call_knows_whether_its_client_is_there() -> None:
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def verify(_: str | None) -> Caller:
        return CALLER

    gateway = cast("Gateway", SimpleNamespace(verifier=SimpleNamespace(verify=verify)))
    context = await authenticate(gateway, Request({"type": "http", "headers": [], "query_string": b""}, receive))
    assert not await context.gone()
    left.set()
    assert await context.gone()
