"""Wake-ups between replicas: two instances on one real database, and the connection cut under them."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from app.auth.caller import CallContext, Caller
from app.auth.handles import Handles
from app.auth.vault import Vault
from app.ledger import wakeups as module
from app.ledger.directory import AgentDirectory
from app.ledger.rows import Agent
from app.ledger.wakeups import MAX_TOKENS, Wakeups, queue_key, task_key
from app.net.egress import Egress, EgressPolicy
from app.operations.agent_doors import AgentDoor
from app.operations.deps import Operations
from app.operations.send_message import accept
from app.operations.served_cards import ServedCards
from app.protocol.models import SendMessageRequest, parse
from tests.contract.doors import say
from tests.support.ledger import Bench
from tests.support.tcp_proxy import proxied

SOON = 2.0
"""Far above the 15 ms a hint takes, far below the 5 s of a ping: a hint that needs the ping's reconnect is too late."""


@pytest_asyncio.fixture
async def pair(database_url: str) -> AsyncIterator[tuple[Wakeups, Wakeups]]:
    first, second = Wakeups(database_url), Wakeups(database_url)
    await asyncio.gather(first.start(), second.start())
    assert await first.wait_connected(SOON)
    assert await second.wait_connected(SOON)
    yield first, second
    await asyncio.gather(first.stop(), second.stop())


async def test_a_bump_wakes_local_waiters_at_once_and_only_those_of_its_key() -> None:
    alone = Wakeups("postgresql://127.0.0.1:1/nowhere")  # never started: no connection is needed
    with alone.watch("x") as signal, alone.watch("y") as other, alone.watch("x", "z") as both:
        alone.bump("x")
        assert signal.take()
        assert both.take()
        assert not other.take()
        assert not signal.take(), "looking clears the signal"
        alone.bump("z")
        assert await both.wait(0)


async def test_a_bump_reaches_the_other_replica(pair: tuple[Wakeups, Wakeups]) -> None:
    first, second = pair
    key = task_key("a", uuid4())
    with second.watch(key) as signal, second.watch(queue_key("x")) as other:
        signal.take()
        other.take()
        first.bump(key)
        assert await signal.wait(SOON)
        assert not other.take()


async def test_a_replayed_message_wakes_nobody(bench: Bench, wakeups: Wakeups) -> None:
    config = {"idempotency": "message_id", "onBusy": "enqueue", "leaseSeconds": 30, "cancelGraceSeconds": 3}
    config |= {"retry": {"maxAttempts": 3, "backoffSeconds": 0, "maxBackoffSeconds": 0}}
    door = AgentDoor(Agent("x", "a", config, 1, datetime.now(UTC)), may_send=True)
    directory = AgentDirectory(bench.db, wakeups)
    ops = Operations(
        bench.db,
        wakeups,
        directory,
        Handles([b"x" * 32]),
        ServedCards([b"x" * 32]),
        egress=Egress(EgressPolicy()),
        vault=Vault([b"x" * 32]),
    )
    ctx = CallContext(Caller("a", "u1", frozenset(), frozenset(), math.inf))
    new = say("go")
    sent = await accept(ops, ctx, door, parse(SendMessageRequest, {"message": new}))
    follow_up = say("more", taskId=str(sent.task_id))
    for message, replayed in ((follow_up, False), (follow_up, True), (new, True)):
        with wakeups.watch(queue_key("x")) as queue, wakeups.watch(task_key("a", sent.task_id)) as task:
            again = await accept(ops, ctx, door, parse(SendMessageRequest, {"message": message}))
            assert again.replayed is replayed
            assert (queue.take(), task.take()) == (not replayed, not replayed)
    directory.close()


async def test_a_waiter_without_a_bump_times_out(pair: tuple[Wakeups, Wakeups]) -> None:
    with pair[0].watch("quiet") as signal:
        signal.take()
        assert not await signal.wait(0.05)


async def test_many_bumps_become_few_notifies(pair: tuple[Wakeups, Wakeups], database_url: str) -> None:
    first, _ = pair
    heard: list[str] = []
    listener = await asyncpg.connect(database_url)
    try:

        def hear(_c: object, _pid: int, _channel: str, payload: object) -> None:
            heard.append(str(payload))

        await listener.add_listener(module.CHANNEL, hear)
        for number in range(500):
            first.bump(f"key {number}")
        first.bump("last")
        first.bump("last")
        async with asyncio.timeout(SOON):
            while not any(module._token("last") in payload for payload in heard):
                await asyncio.sleep(0.005)
        carrying = [payload for payload in heard if len(payload) > module.TOKEN_CHARS]
        assert len(carrying) <= 2, "501 keys, bumped within one tick, in at most two payloads"
        assert all(len(payload) < 8000 for payload in heard)
    finally:
        await listener.close()


async def test_more_keys_than_a_payload_holds_wake_everybody(pair: tuple[Wakeups, Wakeups]) -> None:
    first, second = pair
    with second.watch("not bumped") as bystander:
        bystander.take()
        for number in range(MAX_TOKENS + 10):
            first.bump(f"key {number}")
        assert await bystander.wait(SOON)


async def test_a_killed_connection_comes_back_and_wakes_all_waiters(
    pair: tuple[Wakeups, Wakeups], database_url: str
) -> None:
    first, second = pair
    assert second.reconnected_at == float("-inf")
    with second.watch("missed") as signal:
        signal.take()
        await _kill_listeners(database_url)
        assert await signal.wait(SOON), "what came while the connection was away was not heard, so all must look"
    assert await second.wait_connected(SOON)
    assert await first.wait_connected(SOON)
    assert second.reconnected_at > 0
    with second.watch("after") as signal:
        signal.take()
        first.bump("after")
        assert await signal.wait(SOON)


async def test_bumps_made_while_disconnected_are_sent_after_the_reconnect(
    pair: tuple[Wakeups, Wakeups], database_url: str
) -> None:
    first, second = pair
    with second.watch("late") as signal:
        await _kill_listeners(database_url)
        assert await second.wait_connected(SOON)
        signal.take()
        first.bump("late")  # its connection may still be gone
        assert await signal.wait(SOON)


async def test_a_half_open_connection_is_found_by_the_unanswered_ping(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PING_SECONDS", 0.1)
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.3)
    async with proxied(database_url) as (proxy, dsn):
        far = Wakeups(dsn)
        await far.start()
        assert await far.wait_connected(SOON)
        with far.watch("any") as signal:
            signal.take()
            proxy.hold()
            assert await signal.wait(5), "a new connection wakes all"
        assert far.reconnected_at > 0
        await far.stop()


async def test_stop_sends_what_is_pending(pair: tuple[Wakeups, Wakeups], database_url: str) -> None:
    third = Wakeups(database_url)
    await third.start()
    assert await third.wait_connected(SOON)
    with pair[0].watch("farewell") as signal:
        signal.take()
        third.bump("farewell")
        await third.stop()
        assert await signal.wait(SOON)


async def test_stop_ends_although_what_is_pending_cannot_be_sent(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.3)
    async with proxied(database_url) as (proxy, dsn):
        stuck = Wakeups(dsn)
        await stuck.start()
        assert await stuck.wait_connected(SOON)
        proxy.hold()
        stuck.bump("unsent")
        async with asyncio.timeout(5):
            await stuck.stop()


async def test_start_does_not_wait_long_for_a_database_that_is_away() -> None:
    nowhere = Wakeups("postgresql://u:p@127.0.0.1:1/nowhere")
    start = time.monotonic()
    await nowhere.start()
    assert time.monotonic() - start < module.TIMEOUT_SECONDS + 1
    await nowhere.stop()


async def _kill_listeners(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        killed = await connection.fetchval(
            """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'waystation-wakeups'"""
        )
        assert killed >= 2
    finally:
        await connection.close()
