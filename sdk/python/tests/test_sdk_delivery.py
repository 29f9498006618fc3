"""Faults between worker and broker: nothing is lost, nothing is doubled, and nothing is sent that may not be."""

import asyncio
import time

import httpx
import pytest
from scripted_broker import Fault, Handling, Kind, Offered, ScriptedBroker, Serving
from waystation_worker import BrokerRefused, Context, Worker, outbox

ALL_FAULTS = [
    Fault(cut="before"),
    Fault(cut="after"),
    Fault(cut="middle"),
    Fault(status=503, retry_after=0.01),
    Fault(status=502),
    Fault(status=429, retry_after=0),
    Fault(status=500, reason="INTERNAL_ERROR"),
]


async def chatty(ctx: Context) -> str:
    """Ten chunks, each acknowledged before the next, so that each is a request of its own."""
    async with ctx.artifact("count") as artifact:
        for number in range(10):
            await artifact.write(str(number))
            await ctx.flush()
    return "done"


def assert_counted(offered: Offered) -> None:
    chunks = offered.chunks()
    assert "".join(text for text, _, _ in chunks) == "0123456789"
    assert [append for _, append, _ in chunks] == [False] + [True] * 10


@pytest.mark.parametrize("fault", ALL_FAULTS, ids=lambda fault: str(fault.cut or fault.status))
@pytest.mark.parametrize("kind", ["leases", "events"])
async def test_a_fault_is_not_noticed(broker: ScriptedBroker, handling: Handling, kind: Kind, fault: Fault) -> None:
    broker.faults[kind] = [fault] if kind == "leases" else [Fault(), fault, Fault(), Fault(), fault, fault]
    offered = broker.offer()
    async with handling(chatty):
        await broker.until(lambda: offered.ended is not None)
    assert_counted(offered)
    assert offered.states() == ["COMPLETED"]
    assert not broker.faults[kind], "every fault has happened"


@pytest.mark.parametrize("fault", ALL_FAULTS[:5], ids=lambda fault: str(fault.cut or fault.status))
async def test_the_lost_answer_to_the_last_event(broker: ScriptedBroker, handling: Handling, fault: Fault) -> None:
    async def handler(_ctx: Context) -> str:
        return "done"

    broker.faults["events"] = [fault]
    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None and broker.count("events") == 2)
    first, second = (body for kind, body in broker.requests if kind == "events")
    assert first == second, "resent as it was, with the same producerEventIds"
    assert offered.states() == ["COMPLETED"]


@pytest.mark.parametrize("kind", ["retry", "release"])
async def test_the_lost_answer_to_giving_back(broker: ScriptedBroker, handling: Handling, kind: Kind) -> None:
    started = asyncio.Event()

    async def handler(_ctx: Context) -> None:
        if kind == "retry":
            raise RuntimeError("no")
        started.set()
        await asyncio.Event().wait()

    broker.faults[kind] = [Fault(cut="after"), Fault(status=503)]
    offered = broker.offer()
    async with handling(handler, grace=0) as stop:
        if kind == "release":
            await started.wait()
            stop.set()
        await broker.until(lambda: broker.count(kind) == 3)
    assert offered.ended == kind
    assert offered.events == []


async def test_a_lost_claim_is_repeated_with_its_claim_id(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(_ctx: Context) -> None:
        pass

    broker.faults["leases"] = [Fault(cut="after")]
    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    first, second, *_ = (body for kind, body in broker.requests if kind == "leases")
    assert first["claimId"] == second["claimId"]
    assert offered.states() == ["COMPLETED"], "the lease whose answer was lost, not another"


async def test_retry_after_is_kept(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(_ctx: Context) -> None:
        pass

    broker.faults["events"] = [Fault(status=503, retry_after=0.4)]
    offered = broker.offer()
    began = time.monotonic()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert time.monotonic() - began >= 0.4


async def test_a_broker_that_never_answers_is_asked_again(
    broker: ScriptedBroker, handling: Handling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation_worker.broker.ANSWER_SECONDS", 0.2)

    async def handler(_ctx: Context) -> None:
        pass

    broker.faults["events"] = [Fault(hang=True), Fault(hang=True)]
    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert broker.count("events") == 3


@pytest.mark.parametrize("reason", ["LEASE_LOST", "TASK_TERMINAL"])
async def test_a_lost_lease_cancels_the_handler_and_silences_it(
    broker: ScriptedBroker, handling: Handling, reason: str
) -> None:
    seen: list[str] = []
    over = asyncio.Event()

    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.progress("once")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(str(ctx.stop_reason))
        try:
            await ctx.progress("once more")
        except asyncio.CancelledError:
            seen.append("silenced")
        over.set()
        return "done"

    offered = broker.offer()
    async with handling(stubborn):
        await broker.until(lambda: bool(offered.events))
        requests = broker.count("events")
        broker.lose(offered, reason)
        await asyncio.wait_for(over.wait(), 5)
    assert seen == ["lost", "silenced"]
    assert broker.count("events") == requests
    assert broker.count("retry") + broker.count("release") == 0


async def test_a_write_to_a_lost_lease_cancels_the_handler(broker: ScriptedBroker, handling: Handling) -> None:
    canceled = asyncio.Event()

    async def handler(ctx: Context) -> None:
        await asyncio.sleep(0)
        broker.lose(offered)
        try:
            await ctx.progress("too late")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            canceled.set()
            raise

    offered = broker.offer()
    async with handling(handler):
        await asyncio.wait_for(canceled.wait(), 5)
    assert offered.events == []


async def test_a_refused_event_is_failed_not_retried(broker: ScriptedBroker, handling: Handling) -> None:
    broker.refuse_event = lambda event: "ARTIFACT_UNKNOWN" if "artifactUpdate" in event else None

    async def handler(ctx: Context) -> None:
        await ctx.emit({"artifactUpdate": {"artifact": {"artifactId": "never"}, "append": True}})

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["FAILED"]
    assert "ARTIFACT_UNKNOWN" in offered.events[0]["statusUpdate"]["status"]["message"]["parts"][0]["text"]


async def test_a_handler_may_recover_from_a_refused_event(broker: ScriptedBroker, handling: Handling) -> None:
    broker.refuse_event = lambda event: "ARTIFACT_UNKNOWN" if "artifactUpdate" in event else None

    async def handler(ctx: Context) -> str:
        await ctx.emit({"artifactUpdate": {"artifact": {"artifactId": "never"}, "append": True}})
        with pytest.raises(BrokerRefused, match="ARTIFACT_UNKNOWN"):
            await ctx.flush()
        return "well then"

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["COMPLETED"]


async def test_what_json_cannot_carry_fails_where_it_is_written(broker: ScriptedBroker, handling: Handling) -> None:
    caught: list[type[Exception]] = []

    async def handler(ctx: Context) -> str:
        for content in ({"no": float("nan")}, {"no": object()}, "lone \ud800"):
            try:
                await ctx.progress(content)
            except (ValueError, TypeError) as error:
                caught.append(type(error))
        return "yes"

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert caught == [ValueError, TypeError, UnicodeEncodeError]
    assert offered.states() == ["COMPLETED"]


async def test_writers_wait_when_the_broker_is_far_behind(
    broker: ScriptedBroker, handling: Handling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_EVENTS", 4)
    written = 0
    stuck = asyncio.Event()

    async def handler(ctx: Context) -> None:
        nonlocal written
        for number in range(20):
            await ctx.progress(str(number))
            written += 1
            if written == 4:
                stuck.set()

    broker.faults["events"] = [Fault(status=503, retry_after=0.3)]
    offered = broker.offer()
    async with handling(handler):
        await stuck.wait()
        await broker.until(lambda: broker.count("events") == 1)
        assert written == 4, "the fifth waits for the first receipt"
        await broker.until(lambda: offered.ended is not None)
    assert len(offered.events) == 21
    assert all(len(body["events"]) <= 4 for kind, body in broker.requests if kind == "events")


async def test_requests_stay_small(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> None:
        for _ in range(6):
            await ctx.progress("x" * 400_000)

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert len(offered.events) == 7
    sizes = [len(str(body)) for kind, body in broker.requests if kind == "events"]
    assert max(sizes) < 1_300_000


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_worker_that_is_not_wanted_ends_with_the_reason(
    broker: ScriptedBroker, serving: Serving, status: int
) -> None:
    broker.faults["leases"] = [Fault(status=status, reason="NO_ENTRY")]
    worker = Worker(broker.url, "wrong")

    @worker.agent("x")
    async def handler(_ctx: Context) -> None:
        pass

    with pytest.raises(BrokerRefused, match=f"{status} NO_ENTRY"):
        await worker.serve()


async def test_an_expired_token_is_asked_for_anew(broker: ScriptedBroker, serving: Serving) -> None:
    tokens = iter(["old", "new", "new", "new", "new", "new", "new", "new"])
    broker.faults["leases"] = [Fault(status=401, reason="UNAUTHENTICATED")]
    worker = Worker(broker.url, lambda: next(tokens, "new"))

    @worker.agent("x")
    async def handler(_ctx: Context) -> None:
        pass

    offered = broker.offer()
    async with serving(worker):
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["COMPLETED"]


async def test_a_failing_broker_does_not_end_the_worker(broker: ScriptedBroker, handling: Handling) -> None:
    broker.faults["leases"] = [Fault(status=500, reason="INTERNAL_ERROR")] * 7

    async def handler(_ctx: Context) -> None:
        pass

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert not broker.faults["leases"]


async def test_a_broker_about_to_stop_is_not_stormed(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(_ctx: Context) -> None:
        pass

    broker.draining = True
    began = time.monotonic()
    async with handling(handler):
        await broker.until(lambda: time.monotonic() - began > 1)
    assert 0 < broker.count("leases") < 40


async def test_a_server_that_is_no_broker_is_named() -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n<html")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    async with server:
        worker = Worker(str(httpx.URL(scheme="http", host="127.0.0.1", port=server.sockets[0].getsockname()[1])), "t")
        worker.agent("x")(lambda _ctx: asyncio.sleep(0))
        with pytest.raises(BrokerRefused, match="did not answer with a JSON object"):
            await worker.serve()
