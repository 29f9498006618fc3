"""Cancel, interrupt, deadline, heartbeats, and the worker's own end."""

import asyncio
import time
from contextlib import suppress

import pytest
from scripted_broker import Fault, Handling, ScriptedBroker
from waystation_worker import Context, held, worker


class Endless:
    """A handler that goes on until it is stopped, and remembers how that was."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.stopped_at = 0.0
        self.reason: str | None = None

    async def __call__(self, ctx: Context) -> str:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped_at = time.monotonic()
            self.reason = ctx.stop_reason
            raise
        return "never"


@pytest.mark.parametrize(
    ("signal", "state"), [("cancel", "CANCELED"), ("interrupt", "CANCELED"), ("deadline", "FAILED")]
)
async def test_a_signal_stops_the_handler_at_once(
    broker: ScriptedBroker, handling: Handling, signal: str, state: str
) -> None:
    handler = Endless()
    offered = broker.offer()
    async with handling(handler):
        await handler.started.wait()
        await broker.until(lambda: broker.count("heartbeat") == 1)
        asked_at = time.monotonic()
        broker.signal(offered, signal)
        await broker.until(lambda: offered.ended is not None)
    assert handler.stopped_at - asked_at < 1, "by the long poll, not by the next heartbeat"
    assert handler.reason == signal
    assert offered.states() == [state]


async def test_a_signal_comes_with_a_receipt_too(broker: ScriptedBroker, handling: Handling) -> None:
    broker.faults["heartbeat"] = [Fault(status=503, retry_after=30)] * 9

    async def handler(ctx: Context) -> None:
        broker.signal(offered, "cancel")
        await ctx.progress("writing")
        await asyncio.Event().wait()

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["WORKING", "CANCELED"]


async def test_a_handler_that_observes_decides_itself(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> str:
        await ctx.canceled.wait()
        await ctx.progress("putting the tools away")
        return "finished anyway"

    offered = broker.offer()
    async with handling(handler, observe_cancel=True):
        await broker.until(lambda: broker.count("heartbeat") == 1)
        broker.signal(offered, "cancel")
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["WORKING", "COMPLETED"]


async def test_cleaning_up_after_a_cancel_may_report(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await ctx.progress("rolled back")

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: broker.count("heartbeat") == 1)
        broker.signal(offered, "cancel")
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["WORKING", "CANCELED"]


async def test_heartbeats_keep_a_lease_at_a_third_of_its_time(broker: ScriptedBroker, handling: Handling) -> None:
    handler = Endless()
    broker.offer(seconds=0.6)
    async with handling(handler, grace=0):
        began = time.monotonic()
        await broker.until(lambda: broker.count("heartbeat") == 4)
        took = time.monotonic() - began
    waits = [body["waitSeconds"] for kind, body in broker.requests if kind == "heartbeat"]
    assert waits == [pytest.approx(0.2)] * 4
    assert took < 3


async def test_a_new_lease_joins_the_poll_that_is_under_way(broker: ScriptedBroker, handling: Handling) -> None:
    handler = Endless()
    broker.offer()
    async with handling(handler, grace=0):
        await broker.until(lambda: broker.count("heartbeat") == 1)
        second = broker.offer()
        await broker.until(
            lambda: any(len(body["leaseIds"]) == 2 for kind, body in broker.requests if kind == "heartbeat"), 5
        )
        broker.signal(second, "cancel")
        await broker.until(lambda: second.ended is not None, 5)
    assert second.states() == ["CANCELED"]


async def test_heartbeats_survive_faults(broker: ScriptedBroker, handling: Handling) -> None:
    handler = Endless()
    broker.faults["heartbeat"] = [
        Fault(cut="before"),
        Fault(cut="middle"),
        Fault(status=503, retry_after=0.01),
        Fault(status=400, reason="INVALID_ARGUMENT"),
    ]
    offered = broker.offer(seconds=0.3)
    async with handling(handler):
        await broker.until(lambda: broker.count("heartbeat") > 4)
        broker.signal(offered, "cancel")
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["CANCELED"]


async def test_the_drain_lets_turns_end_and_keeps_their_leases(broker: ScriptedBroker, handling: Handling) -> None:
    go, started = asyncio.Event(), asyncio.Event()

    async def handler(_ctx: Context) -> str:
        started.set()
        await go.wait()
        return "in time"

    offered = broker.offer(seconds=0.3)
    async with handling(handler) as stop:
        await started.wait()
        stop.set()
        late = broker.offer()
        beats = broker.count("heartbeat")
        await broker.until(lambda: broker.count("heartbeat") >= beats + 3)
        go.set()
    assert offered.states() == ["COMPLETED"]
    assert late.ended in (None, "release"), "no new work"
    assert late.events == []


async def test_the_drain_releases_what_does_not_end(broker: ScriptedBroker, handling: Handling) -> None:
    handler = Endless()
    offered = broker.offer()
    async with handling(handler, grace=0.1) as stop:
        await handler.started.wait()
        stop.set()
    assert handler.reason == "drain"
    assert offered.ended == "release"
    assert offered.events == []


async def test_the_drain_gives_back_a_claim_that_crosses_it(broker: ScriptedBroker, handling: Handling) -> None:
    """The broker has leased a task, but its answer never came: the worker asks for it again and releases it."""

    async def handler(_ctx: Context) -> None:
        raise AssertionError("a draining worker starts nothing")

    broker.faults["leases"] = [Fault(cut="after"), Fault(status=503, retry_after=30)]
    offered = broker.offer()
    async with handling(handler) as stop:
        await broker.until(lambda: broker.count("leases") == 2)
        stop.set()
    assert offered.ended == "release"
    assert broker.count("events") == 0


async def test_a_handler_that_will_not_stop_does_not_keep_the_worker(
    broker: ScriptedBroker, handling: Handling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RELEASE_SECONDS", 0.1)
    started, let_go = asyncio.Event(), asyncio.Event()

    async def handler(ctx: Context) -> None:
        started.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    offered = broker.offer()
    async with handling(handler, grace=0) as stop:
        await started.wait()
        stop.set()
    assert offered.ended is None, "neither ended nor given back: it may still be doing something"
    let_go.set()


async def test_a_handler_that_lingers_after_its_end_is_stopped(
    broker: ScriptedBroker, handling: Handling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "LINGER_SECONDS", 0.1)
    stopped = asyncio.Event()

    async def handler(ctx: Context) -> None:
        await ctx.finish({"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}})
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    offered = broker.offer()
    async with handling(handler):
        await asyncio.wait_for(stopped.wait(), 5)
    assert offered.states() == ["COMPLETED"]


async def test_what_fails_after_the_end_changes_nothing(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.finish({"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}})
        raise RuntimeError("while putting the tools away")

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["COMPLETED"]
    assert broker.count("retry") == 0


async def test_the_end_that_is_on_its_way_beats_a_cancel(broker: ScriptedBroker, handling: Handling) -> None:
    broker.faults["events"] = [Fault(status=503, retry_after=0.5)]

    async def handler(_ctx: Context) -> str:
        await broker.until(lambda: broker.count("heartbeat") == 1)
        return "done"

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: broker.count("events") == 1)
        broker.signal(offered, "cancel")
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["COMPLETED"]
