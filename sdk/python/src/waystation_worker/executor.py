"""Runs an a2a-sdk ``AgentExecutor`` (1.1 and later) as it is, in the place of the SDK's own server.

What is the same: ``execute`` is called once for each message, never twice at once for one task; ``current_task`` is
None for the first message of a task, else the Task with its history and artifacts (state WORKING, since it is being
worked on); events published in order are stored in order; a cancel cancels the coroutine, then calls
``executor.cancel``.

What the broker makes different: a terminal or interrupted status (or a direct Message) ends the turn when it is stored,
and whatever is published after it stops ``execute``. An exception means another attempt, up to the agent's
``retry.maxAttempts``, then FAILED; only A2A's own errors (except InternalError) are FAILED at once. ``execute`` that
returns without such a status has COMPLETED the task; the SDK's server would leave it WORKING, with nobody to end it.
On a lost lease the coroutine is canceled and ``executor.cancel`` is not called: another worker has the task now.
"""

import asyncio
import logging

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.types.a2a_pb2 import Message, SendMessageConfiguration, SendMessageRequest, Task
from a2a.utils.errors import A2AError, InternalError
from google.protobuf.json_format import ParseDict

from waystation_worker.agent import Agent
from waystation_worker.context import Context
from waystation_worker.errors import TaskFailed
from waystation_worker.executor_events import ExecutorEvent, worker_events

logger = logging.getLogger(__name__)


def agent_of(name: str, executor: AgentExecutor, concurrency: int) -> Agent:
    """The agent whose turns ``executor`` works on."""

    async def execute(ctx: Context) -> None:
        queue = TurnQueue(ctx)
        try:
            await executor.execute(request_context(ctx, queue.known), queue)
        except InternalError:
            raise
        except A2AError as error:
            raise TaskFailed(str(error)) from error
        if not ctx.over:
            if ctx.canceled.is_set():
                raise asyncio.CancelledError
            logger.warning("task %s: execute() returned without a final status, taken as COMPLETED", ctx.task_id)

    async def cancel(ctx: Context) -> None:
        queue = TurnQueue(ctx)
        request = RequestContext(_call(ctx), None, ctx.task_id, ctx.context_id, queue.known)
        await executor.cancel(request, queue)

    return Agent(name, execute, concurrency, full=True, cancel=cancel)


class TurnQueue(EventQueue):
    """The event queue of one turn: what is put in goes to the broker. A status that ends the turn waits for it."""

    def __init__(self, ctx: Context) -> None:
        self.known = ParseDict(ctx.task, Task(), ignore_unknown_fields=True)
        self._ctx = ctx

    async def enqueue_event(self, event: ExecutorEvent) -> None:
        for body, ends in worker_events(event, self.known):
            if ends:
                await self._ctx.finish(body)
            else:
                await self._ctx.emit(body)


def request_context(ctx: Context, task: Task) -> RequestContext:
    """The SDK's view of a turn. ``tenant`` is the verified one; turn and attempt are in the call context's state."""
    request = SendMessageRequest(
        message=ParseDict(ctx.message, Message(), ignore_unknown_fields=True),
        configuration=SendMessageConfiguration(),
    )
    current = None if ctx.turn == 1 else task
    return RequestContext(_call(ctx), request, ctx.task_id, ctx.context_id, current)


def _call(ctx: Context) -> ServerCallContext:
    extra = {"turn": ctx.turn, "attempt": ctx.attempt, "traceparent": ctx.lease.traceparent}
    return ServerCallContext(state={"waystation": extra}, tenant=ctx.tenant)
