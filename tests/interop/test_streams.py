"""Streaming with the official clients: SendStreamingMessage and SubscribeToTask (a2a-server.md, Streaming;
known-faults.md).
"""

import pytest

from tests.interop.conftest import Agent
from tests.interop.messages import artifacts, say, short, shorts, state, text
from tests.interop.programs import ClientError, Json
from tests.support.worker import artifact, status

pytestmark = pytest.mark.interop


async def test_stream_gives_the_task_first_then_every_event_in_order(agent: Agent) -> None:
    call = agent.user().stream(say("go"))
    assert short(await call.next() or {}) == "task SUBMITTED"
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        await worker.write(lease, status("WORKING", "counting"))
        await worker.write(lease, artifact("stock", "A:"))
        await worker.write(lease, artifact("stock", "3", append=True, last=True), status("COMPLETED", "done"))
    assert shorts(await call.rest()) == ["WORKING", "WORKING", "stock=A:", "stock+3", "COMPLETED"]


async def test_stream_closes_at_input_required_and_a_subscription_stays_open(agent: Agent) -> None:
    """a2a-java#754."""
    user = agent.user()
    call = user.stream(say("go"))
    task = (await call.next() or {})["task"]
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which one?"))
        assert shorts(await call.rest()) == ["WORKING", "INPUT_REQUIRED"]

        subscription = user.subscribe(task["id"])
        assert short(await subscription.next() or {}) == "task INPUT_REQUIRED"
        await user.send(say("this one", taskId=task["id"]), returnImmediately=True)
        await worker.write(await worker.lease_one(), status("COMPLETED"))
        assert shorts(await subscription.rest()) == ["WORKING", "WORKING", "COMPLETED"]


async def test_stream_stays_open_at_auth_required(agent: Agent) -> None:
    call = agent.user().stream(say("go"))
    task = (await call.next() or {})["task"]
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("AUTH_REQUIRED", "sign in first"))
        await agent.user().send(say("signed in", taskId=task["id"]), returnImmediately=True)
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    assert shorts(await call.rest()) == ["WORKING", "AUTH_REQUIRED", "WORKING", "WORKING", "COMPLETED"]


async def test_a_dropped_stream_cancels_nothing_and_a_subscription_gives_the_rest(agent: Agent) -> None:
    """a2a-python#296, a2a-dotnet#344."""
    user = agent.user()
    call = user.stream(say("go"))
    task = (await call.next() or {})["task"]
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("stock", "A:"))
        await call.stop()
        assert state(await user.get(task["id"])) == "WORKING"

        subscription = user.subscribe(task["id"])
        snapshot = (await subscription.next() or {})["task"]
        assert (state(snapshot), artifacts(snapshot)) == ("WORKING", {"stock": "A:"})
        await worker.write(lease, artifact("stock", "3", append=True, last=True))
        await worker.write(lease, status("COMPLETED"))
    assert shorts(await subscription.rest()) == ["stock+3", "COMPLETED"]
    assert artifacts(await user.get(task["id"])) == {"stock": "A:3"}


async def test_streams_of_one_task_agree_and_closing_one_affects_no_other(agent: Agent) -> None:
    """open-cowork#662: a late second subscriber gets the whole suffix."""
    user = agent.user()
    call = user.stream(say("go"))
    task = (await call.next() or {})["task"]
    first = user.subscribe(task["id"])
    await first.next()
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        late = user.subscribe(task["id"])
        assert short(await late.next() or {}) == "task WORKING"
        await worker.write(lease, artifact("stock", "A:"))
        await first.stop()
        await worker.write(lease, artifact("stock", "3", append=True, last=True), status("COMPLETED"))
    whole = await call.rest()
    assert shorts(whole) == ["WORKING", "stock=A:", "stock+3", "COMPLETED"]
    assert await late.rest() == whole[1:]


async def test_line_separators_and_non_ascii_text_arrive_as_they_were_sent(agent: Agent) -> None:
    """typescript-sdk#1925, a2a-python#1078: U+2028, U+2029 and U+0085 do not split frames."""
    sent = "a\u2028b\u2029c\u0085d\r\ne\n\nf: ü 漢字 🙂"
    call = agent.user().stream(say("go"))
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("text", sent, last=True), status("COMPLETED"))
    updates: list[Json] = [item["artifactUpdate"] for item in await call.rest() if "artifactUpdate" in item]
    assert [text(update["artifact"]) for update in updates] == [sent]


async def test_a_direct_message_of_the_worker_completes_the_task(agent: Agent) -> None:
    call = agent.user().stream(say("hello"))
    async with agent.worker() as worker:
        message = {"messageId": "reply-1", "role": "ROLE_AGENT", "parts": [{"text": "hello to you"}]}
        await worker.write(await worker.lease_one(), {"message": message})
    items = await call.rest()
    assert shorts(items)[-1] == "COMPLETED"
    assert text(items[-1]["statusUpdate"]["status"]["message"]) == "hello to you"


async def test_a_silent_stream_lives_on_heartbeats(agent: Agent) -> None:
    """a2a-python#545, kagent#907: these brokers send a comment every 0.3 s; no client makes an item of it."""
    call = agent.user().stream(say("go"))
    await call.next()
    with pytest.raises(TimeoutError):
        await call.next(seconds=1.5)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    assert shorts(await call.rest()) == ["WORKING", "COMPLETED"]


@pytest.mark.parametrize("ended", ["COMPLETED", "FAILED", "CANCELED", "REJECTED"])
async def test_subscribing_to_a_terminal_task_is_refused(agent: Agent, ended: str) -> None:
    """a2a-go#438, a2a-python#1205, a2a-java#741."""
    user = agent.user()
    task = await user.send(say("go"), returnImmediately=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status(ended))
    with pytest.raises(ClientError) as refused:
        await user.subscribe(task["id"]).rest()
    assert refused.value.reason == "UNSUPPORTED_OPERATION"


async def test_a_stream_that_cannot_start_is_an_error_and_not_an_empty_stream(agent: Agent) -> None:
    """ggcode#446, a2a-rs#79."""
    user = agent.user()
    for call in (user.subscribe("no-such-task"), user.stream(say("go", taskId="no-such-task"))):
        with pytest.raises(ClientError) as refused:
            await call.rest()
        assert refused.value.reason == "TASK_NOT_FOUND"
