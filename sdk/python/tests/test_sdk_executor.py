"""a2a-sdk executors, unchanged, on a scripted broker: what they see, and what becomes of what they publish."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from a2a.helpers import new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    Artifact,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from scripted_broker import Fault, Offered, ScriptedBroker, Serving
from waystation_worker import Worker

Execute = Callable[[RequestContext, EventQueue], Awaitable[None]]
Executing = Callable[..., AbstractAsyncContextManager[asyncio.Event]]


class Scripted(AgentExecutor):
    """Runs the functions that it was given, and counts the cancels."""

    def __init__(self, execute: Execute, cancel: Execute | None = None) -> None:
        self._execute = execute
        self._cancel = cancel
        self.canceled = 0

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await self._execute(context, event_queue)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.canceled += 1
        if self._cancel is not None:
            await self._cancel(context, event_queue)


@pytest.fixture
def executing(broker: ScriptedBroker, serving: Serving) -> Executing:
    """``async with executing(executor)``: it works for the agent ``x`` inside the block."""

    def execute(executor: AgentExecutor, grace: float = 5) -> AbstractAsyncContextManager[asyncio.Event]:
        return serving(
            Worker.from_executor(executor, agent="x", url=broker.url, token="token", concurrency=2, grace_seconds=grace)
        )

    return execute


def updater(context: RequestContext, queue: EventQueue) -> TaskUpdater:
    return TaskUpdater(queue, context.task_id or "", context.context_id or "")


def texts(offered: Offered) -> list[str]:
    """The text of each status message written."""
    statuses = [event["statusUpdate"]["status"] for event in offered.events if "statusUpdate" in event]
    return [status["message"]["parts"][0]["text"] for status in statuses if "message" in status]


async def finished(broker: ScriptedBroker, offered: Offered) -> Offered:
    await broker.until(lambda: offered.ended is not None)
    return offered


async def test_the_request_is_what_the_sdk_server_would_show(broker: ScriptedBroker, executing: Executing) -> None:
    seen: dict[str, Any] = {}

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        assert context.message is not None
        seen[context.task_id or ""] = {
            "input": context.get_user_input(),
            "ids": (context.context_id, context.message.task_id, context.message.context_id),
            "role": context.message.role,
            "tenant": context.tenant,
            "task": context.current_task,
        }
        await updater(context, queue).complete()

    first, second = broker.offer("one"), broker.offer("two", turn=2)
    second.lease["task"]["artifacts"] = [{"artifactId": "a1", "parts": [{"text": "old"}]}]
    async with executing(Scripted(execute)):
        await finished(broker, first)
        await finished(broker, second)
    assert seen["task-1"] == {
        "input": "one",
        "ids": ("context-1", "task-1", "context-1"),
        "role": Role.ROLE_USER,
        "tenant": "a",
        "task": None,
    }
    task = seen["task-2"]["task"]
    assert (task.id, task.context_id, task.status.state) == ("task-2", "context-2", TaskState.TASK_STATE_WORKING)
    assert [message.parts[0].text for message in task.history] == ["two"]
    assert task.artifacts[0].parts[0].text == "old"
    assert all(body["taskView"] == "full" for kind, body in broker.requests if kind == "leases")


async def test_task_updater_events_arrive_as_published(broker: ScriptedBroker, executing: Executing) -> None:
    async def execute(context: RequestContext, queue: EventQueue) -> None:
        task = updater(context, queue)
        await task.submit()
        await task.start_work(task.new_agent_message([new_text_part("looking")]))
        await task.add_artifact([new_text_part("A:")], artifact_id="stock", name="stock", metadata={"unit": "pieces"})
        await task.add_artifact([new_text_part("3")], artifact_id="stock", append=True, last_chunk=True)
        await task.complete(task.new_agent_message([new_text_part("done")]))

    offered = broker.offer()
    async with executing(Scripted(execute)):
        await finished(broker, offered)
    assert offered.states() == ["WORKING", "COMPLETED"], "SUBMITTED is known already"
    assert texts(offered) == ["looking", "done"]
    assert offered.chunks() == [("A:", False, False), ("3", True, True)]
    artifact = offered.events[1]["artifactUpdate"]["artifact"]
    assert artifact == {
        "artifactId": "stock",
        "name": "stock",
        "metadata": {"unit": "pieces"},
        "parts": [{"text": "A:"}],
    }
    assert not {"taskId", "contextId"} & offered.events[1]["artifactUpdate"].keys()


async def test_an_interrupted_status_ends_the_turn(broker: ScriptedBroker, executing: Executing) -> None:
    after: list[str] = []

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        task = updater(context, queue)
        await task.requires_input(new_text_message("Which SKU?"))
        after.append("returned")
        try:
            await task.complete()
            after.append("went on")
        except Exception:
            after.append("caught")

    offered = broker.offer()
    async with executing(Scripted(execute)):
        await finished(broker, offered)
    assert offered.states() == ["INPUT_REQUIRED"]
    assert texts(offered) == ["Which SKU?"]
    assert after == ["returned"], "what is published after the end stops the executor"


async def test_a_message_is_a_direct_reply(broker: ScriptedBroker, executing: Executing) -> None:
    async def execute(_context: RequestContext, queue: EventQueue) -> None:
        await queue.enqueue_event(Message(parts=[new_text_part("pong")]))

    offered = broker.offer()
    async with executing(Scripted(execute)):
        await finished(broker, offered)
    [event] = offered.events
    assert event["message"]["parts"] == [{"text": "pong"}]
    assert event["message"]["role"] == "ROLE_AGENT"
    assert event["message"]["messageId"]


async def test_a_task_event_says_only_what_is_new(broker: ScriptedBroker, executing: Executing) -> None:
    async def execute(context: RequestContext, queue: EventQueue) -> None:
        assert context.message is not None
        initial = Task(id=context.task_id, context_id=context.context_id, history=[context.message])
        initial.status.state = TaskState.TASK_STATE_SUBMITTED
        await queue.enqueue_event(initial)
        whole = Task(id=context.task_id, context_id=context.context_id)
        whole.artifacts.extend(
            [
                Artifact(artifact_id="old", parts=[new_text_part("known")]),
                Artifact(artifact_id="new", parts=[new_text_part("news")]),
            ]
        )
        whole.status.CopyFrom(TaskStatus(state=TaskState.TASK_STATE_COMPLETED, message=new_text_message("done")))
        await queue.enqueue_event(whole)

    offered = broker.offer()
    offered.lease["task"]["artifacts"] = [{"artifactId": "old", "parts": [{"text": "known"}], "metadata": {"n": 1}}]
    async with executing(Scripted(execute)):
        await finished(broker, offered)
    assert offered.chunks() == [("news", False, True)]
    assert offered.states() == ["COMPLETED"]
    assert texts(offered) == ["done"]


async def test_the_current_task_published_again_is_nothing(broker: ScriptedBroker, executing: Executing) -> None:
    async def execute(context: RequestContext, queue: EventQueue) -> None:
        assert context.current_task is not None
        await queue.enqueue_event(context.current_task)
        await updater(context, queue).complete()

    offered = broker.offer(turn=2)
    question = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Which?"}]}
    offered.lease["task"]["status"]["message"] = question
    async with executing(Scripted(execute)):
        await finished(broker, offered)
    assert offered.states() == ["COMPLETED"]


async def test_returning_without_a_status_completes(broker: ScriptedBroker, executing: Executing) -> None:
    async def execute(context: RequestContext, queue: EventQueue) -> None:
        await updater(context, queue).add_artifact([new_text_part("3")], artifact_id="stock")

    offered = broker.offer()
    async with executing(Scripted(execute)):
        await finished(broker, offered)
    assert offered.states() == ["COMPLETED"]
    assert offered.chunks() == [("3", False, False)]


@pytest.mark.parametrize(
    ("error", "ended"),
    [(RuntimeError("broke"), "retry"), (InvalidParamsError("no SKU"), "TASK_STATE_FAILED")],
    ids=["any", "A2A"],
)
async def test_exceptions(broker: ScriptedBroker, executing: Executing, error: Exception, ended: str) -> None:
    async def execute(_context: RequestContext, _queue: EventQueue) -> None:
        raise error

    offered = broker.offer()
    async with executing(Scripted(execute)):
        await finished(broker, offered)
    assert offered.ended == ended
    assert offered.error == ("RuntimeError: broke" if ended == "retry" else None)
    assert texts(offered) == ([] if ended == "retry" else ["no SKU"])


async def test_an_event_of_another_task_is_not_sent(broker: ScriptedBroker, executing: Executing) -> None:
    async def execute(context: RequestContext, queue: EventQueue) -> None:
        status = TaskStatus(state=TaskState.TASK_STATE_WORKING)
        with pytest.raises(ValueError, match="published for task task-1"):
            await queue.enqueue_event(TaskStatusUpdateEvent(task_id="task-9", status=status))
        with pytest.raises(ValueError, match="in context c9"):
            await queue.enqueue_event(TaskArtifactUpdateEvent(task_id="task-1", context_id="c9"))
        await queue.enqueue_event(TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED)))

    offered = broker.offer()
    async with executing(Scripted(execute)):
        await finished(broker, offered)
    assert offered.states() == ["COMPLETED"]


async def publish_canceled(context: RequestContext, queue: EventQueue) -> None:
    await updater(context, queue).cancel(new_text_message("stopped in time"))


async def say_nothing(_context: RequestContext, _queue: EventQueue) -> None:
    pass


async def unsupported(_context: RequestContext, _queue: EventQueue) -> None:
    raise UnsupportedOperationError("cancel is not supported")


@pytest.mark.parametrize(
    ("cancel", "said"),
    [(publish_canceled, ["stopped in time"]), (say_nothing, []), (unsupported, [])],
    ids=["publishes", "says nothing", "raises"],
)
@pytest.mark.parametrize("swallows", [False, True])
async def test_cancel_stops_execute_then_calls_cancel(
    broker: ScriptedBroker, executing: Executing, cancel: Execute, said: list[str], swallows: bool
) -> None:
    order: list[str] = []

    async def execute(_context: RequestContext, _queue: EventQueue) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            order.append("execute stopped")
            if not swallows:
                raise

    async def recorded(context: RequestContext, queue: EventQueue) -> None:
        order.append(f"cancel of {context.task_id}")
        await cancel(context, queue)

    executor = Scripted(execute, recorded)
    offered = broker.offer()
    async with executing(executor):
        await broker.until(lambda: broker.count("heartbeat") == 1)
        broker.signal(offered, "cancel")
        await finished(broker, offered)
    assert order == ["execute stopped", "cancel of task-1"]
    assert offered.states() == ["CANCELED"]
    assert texts(offered) == said


@pytest.mark.parametrize("how", ["lost", "drain"])
async def test_a_lost_lease_or_a_drain_does_not_call_cancel(
    broker: ScriptedBroker, executing: Executing, how: str
) -> None:
    stopped = asyncio.Event()

    async def execute(_context: RequestContext, _queue: EventQueue) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    executor = Scripted(execute, publish_canceled)
    offered = broker.offer()
    async with executing(executor, grace=0) as stop:
        await broker.until(lambda: broker.count("heartbeat") == 1)
        if how == "lost":
            broker.lose(offered)
        else:
            stop.set()
        await asyncio.wait_for(stopped.wait(), 5)
    assert executor.canceled == 0
    assert offered.events == []
    assert offered.ended == ("LEASE_LOST" if how == "lost" else "release")


async def test_execute_waits_until_the_end_is_stored(broker: ScriptedBroker, executing: Executing) -> None:
    ended_when_returned: list[str | None] = []

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        await updater(context, queue).complete()
        ended_when_returned.append(offered.ended)

    broker.faults["events"] = [Fault(cut="before"), Fault(status=503)]
    offered = broker.offer()
    async with executing(Scripted(execute)):
        await finished(broker, offered)
    assert ended_when_returned == ["TASK_STATE_COMPLETED"]
