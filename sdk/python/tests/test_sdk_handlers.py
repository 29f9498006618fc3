"""What a handler does, and what the broker then has: the plain form, without faults."""

import asyncio
from typing import Any

import pytest
from scripted_broker import Handling, Json, ScriptedBroker, Serving
from waystation_worker import Context, RetryLater, TaskFailed, Worker


def last_message(events: list[Json]) -> Json:
    return events[-1]["statusUpdate"]["status"]["message"]


async def test_returned_text_completes_with_a_message(broker: ScriptedBroker, handling: Handling) -> None:
    async def echo(ctx: Context) -> str:
        return f"You said: {ctx.text}"

    offered = broker.offer("hi")
    async with handling(echo):
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["COMPLETED"]
    message = last_message(offered.events)
    assert message["role"] == "ROLE_AGENT"
    assert message["parts"] == [{"text": "You said: hi"}]
    assert message["messageId"]


async def test_returned_mapping_is_a_data_part_and_nothing_is_no_message(
    broker: ScriptedBroker, handling: Handling
) -> None:
    async def handler(ctx: Context) -> dict[str, int] | None:
        return {"stock": 3} if ctx.text == "data" else None

    data, nothing = broker.offer("data"), broker.offer("nothing")
    async with handling(handler):
        await broker.until(lambda: bool(data.ended and nothing.ended))
    assert last_message(data.events)["parts"] == [{"data": {"stock": 3}}]
    assert nothing.events[-1]["statusUpdate"] == {"status": {"state": "TASK_STATE_COMPLETED"}}


async def test_context_shows_the_lease(broker: ScriptedBroker, handling: Handling) -> None:
    seen: dict[str, object] = {}

    async def handler(ctx: Context) -> None:
        seen.update(
            task=ctx.task_id,
            context=ctx.context_id,
            tenant=ctx.tenant,
            turn=ctx.turn,
            attempt=ctx.attempt,
            text=ctx.text,
        )

    offered = broker.offer("first", turn=2, attempt=3)
    offered.lease["message"]["parts"].extend([{"data": {"ignored": True}}, {"text": "second"}])
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert seen == {
        "task": "task-1",
        "context": "context-1",
        "tenant": "a",
        "turn": 2,
        "attempt": 3,
        "text": "first\nsecond",
    }


async def test_artifact_streams_replace_then_append_then_last_chunk(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.progress("looking")
        async with ctx.artifact("stock") as artifact:
            await artifact.write("A:")
            await artifact.write("3")

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.chunks() == [("A:", False, False), ("3", True, False), ("", True, True)]
    assert {event["artifactUpdate"]["artifact"]["artifactId"] for event in offered.events[1:4]} == {"stock"}
    assert offered.states() == ["WORKING", "COMPLETED"]


async def test_a_last_chunk_needs_no_closing_one(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.artifact("stock", artifact_id="s1", description="how many") as artifact:
            await artifact.write("A:")
            await artifact.write("3", last=True)
            with pytest.raises(ValueError, match="closed"):
                await artifact.write("4")

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.chunks() == [("A:", False, False), ("3", True, True)]


async def test_an_artifact_left_by_an_exception_stays_open(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.artifact("stock") as artifact:
            await artifact.write("A:")
            raise RuntimeError("the shelf fell over")

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.chunks() == [("A:", False, False)]
    assert (offered.ended, offered.error) == ("retry", "RuntimeError: the shelf fell over")


@pytest.mark.parametrize("how", ["complete", "fail", "reject", "require_input", "require_auth"])
async def test_calls_that_end_the_turn_do_not_return(broker: ScriptedBroker, handling: Handling, how: str) -> None:
    after: list[str] = []

    async def handler(ctx: Context) -> None:
        try:
            await getattr(ctx, how)("so it ends")
            after.append("went on")
        except Exception:
            after.append("caught")
        finally:
            after.append("cleaned up")

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    states = {
        "complete": "COMPLETED",
        "fail": "FAILED",
        "reject": "REJECTED",
        "require_input": "INPUT_REQUIRED",
        "require_auth": "AUTH_REQUIRED",
    }
    assert offered.states() == [states[how]]
    assert last_message(offered.events)["parts"] == [{"text": "so it ends"}]
    assert after == ["cleaned up"]


async def test_direct_reply_is_a_message_alone(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.reply("pong")

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert [event["message"]["parts"] for event in offered.events] == [[{"text": "pong"}]]


async def test_task_failed_is_failed_without_a_retry(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(_ctx: Context) -> None:
        raise TaskFailed("no such SKU")

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.states() == ["FAILED"]
    assert last_message(offered.events)["parts"] == [{"text": "no such SKU"}]
    assert broker.count("retry") == 0


async def test_retry_later_carries_its_delay(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.progress("trying")
        raise RetryLater("the supplier is closed", delay_seconds=60)

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert ("retry", {"error": "the supplier is closed", "delaySeconds": 60}) in broker.requests
    assert offered.states() == ["WORKING"], "what was reported before is kept"


async def test_a_handler_that_cancels_itself_is_retried(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(_ctx: Context) -> None:
        raise asyncio.CancelledError

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.ended == "retry"


@pytest.mark.parametrize("returned", [object(), {"stock": float("inf")}, "lone \ud800"])
async def test_an_answer_that_is_no_json_is_the_handlers_error(
    broker: ScriptedBroker, handling: Handling, returned: Any
) -> None:
    async def handler(_ctx: Context) -> Any:
        return returned

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.ended == "retry"
    assert offered.error
    assert "Error: " in offered.error


async def test_an_error_text_is_made_fit_to_be_sent(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(_ctx: Context) -> None:
        raise RuntimeError("lone \ud800 " + "x" * 5000)

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert offered.error
    assert offered.error.startswith("RuntimeError: lone ? x")
    assert len(offered.error) == 2000


async def test_events_of_one_moment_leave_in_one_request(broker: ScriptedBroker, handling: Handling) -> None:
    async def handler(ctx: Context) -> None:
        for number in range(50):
            await ctx.progress(str(number))

    offered = broker.offer()
    async with handling(handler):
        await broker.until(lambda: offered.ended is not None)
    assert len(offered.events) == 51
    assert broker.count("events") <= 2
    assert len(offered.seqs) == 51, "each event has an id of its own"


async def test_concurrency_is_the_number_of_turns_at_once(broker: ScriptedBroker, handling: Handling) -> None:
    running = most = 0
    go = asyncio.Event()

    async def handler(_ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            go.set()
        await go.wait()
        running -= 1

    offers = [broker.offer() for _ in range(9)]
    async with handling(handler, concurrency=2):
        await broker.until(lambda: all(offered.ended for offered in offers))
    assert most == 2
    assert all(body["max"] <= 2 for kind, body in broker.requests if kind == "leases")


async def test_one_worker_for_several_agents(broker: ScriptedBroker, serving: Serving) -> None:
    worker = Worker(broker.url, "token")
    handled: set[str] = set()

    @worker.agent("x")
    async def x(_ctx: Context) -> None:
        handled.add("x")

    @worker.agent("y")
    async def y(_ctx: Context) -> None:
        handled.add("y")

    async with serving(worker):
        await broker.until(lambda: broker.count("leases") == 2)
        offers = [broker.offer(), broker.offer()]
        await broker.until(lambda: all(offered.ended for offered in offers))
    assert worker.agents == ("x", "y")
    assert handled
    with pytest.raises(ValueError, match="a handler already"):
        worker.agent("x")(x)


@pytest.mark.parametrize(("url", "agents"), [("localhost:8080", 1), ("http://localhost:8080", 0)])
async def test_a_worker_that_cannot_work_says_so(url: str, agents: int) -> None:
    worker = Worker(url, "token")
    if agents:
        worker.agent("x")(lambda _ctx: asyncio.sleep(0))
    with pytest.raises(ValueError, match="needs an http"):
        await worker.serve()
