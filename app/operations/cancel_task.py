"""CancelTask (A2A v1.0 §3.1.5; resume-contract.md, Cancel against complete)."""

import asyncio
from typing import assert_never
from uuid import UUID

from app import metrics
from app.auth.caller import CallContext
from app.errors import TaskNotCancelable, TaskNotFound, Unavailable
from app.ledger import tasks, transitions
from app.ledger.rows import AlreadyTerminal, Canceled, CancelPending, Due, TaskMissing
from app.ledger.wakeups import Signal, lease_key, queue_key, task_key
from app.operations.agent_doors import AgentDoor
from app.operations.answers import Answer, facts_of, head_of_agent, shown
from app.operations.deps import Operations
from app.protocol.models import CancelTaskRequest
from app.protocol.states import TaskState

MIN_WAIT_SECONDS = 0.01
DRAIN_SECONDS = 4.0
"""A process that drains still waits for a grace that is over within this time (reliability.md: no 5xx in a deploy)."""


async def cancel_task(ops: Operations, ctx: CallContext, door: AgentDoor, request: CancelTaskRequest) -> Answer:
    """The canceled Task, at once or at the latest when the grace of the worker that holds it is over.

    A second call meanwhile joins the wait, also on another replica: a process that drains ends a long one with
    Unavailable, the request to cancel stays. Raises TaskNotCancelable with the winning state, TaskNotFound,
    Unavailable.
    """
    tenant = ctx.caller.tenant
    task_id = (await head_of_agent(ops, tenant, door.agent_id, request.id)).task_id
    with ops.wakeups.watch(task_key(tenant, task_id)) as signal:
        await _cancel(ops, ctx, task_id, door.agent_id, signal)
    loaded = await tasks.load(ops.db, tenant, task_id)
    if loaded is None:
        raise TaskNotFound
    return Answer(await shown(ops, loaded))


async def _cancel(ops: Operations, ctx: CallContext, task_id: UUID, agent_id: str, signal: Signal) -> None:
    """Until the task is canceled. Asking again joins the wait, so it is also how the wait goes on."""
    tenant, asked = ctx.caller.tenant, False
    while True:
        outcome = await transitions.cancel(ops.db, tenant=tenant, subject=ctx.caller.subject, task_id=task_id)
        match outcome:
            case Canceled():
                _wake(ops, tenant, task_id, agent_id)
                metrics.count_transition(TaskState.CANCELED, task_id)
                return
            case CancelPending():
                if not asked:
                    _wake(ops, tenant, task_id, agent_id)
                asked = True
                await _grace(ops, ctx, task_id, agent_id, outcome, signal)
            case AlreadyTerminal():
                if asked and outcome.state is TaskState.CANCELED:
                    return
                if asked:
                    metrics.RACES_LOST.inc()
                facts = facts_of(outcome.state, outcome.terminal_seq)
                raise TaskNotCancelable(f"The task is {outcome.state.wire}", metadata=facts)
            case TaskMissing():
                raise TaskNotFound
            case _:
                assert_never(outcome)


async def _grace(
    ops: Operations, ctx: CallContext, task_id: UUID, agent_id: str, pending: CancelPending, signal: Signal
) -> None:
    """Wait until the lease has ended or its grace is over, then force the end: the ledger judges both again."""
    tenant, loop = ctx.caller.tenant, asyncio.get_running_loop()
    deadline = loop.time() + max(pending.seconds_left, MIN_WAIT_SECONDS)
    while (left := deadline - loop.time()) > 0:
        # a short grace ends before the process has to; what is left to the reaper is told to be asked for again
        if (ops.drain.is_set() and left > DRAIN_SECONDS) or await ctx.gone():
            raise Unavailable("The task is asked to stop; resend to wait for its end")
        await signal.wait(min(left, ops.poll_after()))
        head = await tasks.head(ops.db, tenant, task_id)
        if head is None or head.state.is_terminal or head.fence != pending.fence:
            return
    ended = await transitions.end_due(ops.db, Due(tenant, task_id, pending.fence, "cancel"))
    if ended is not None:
        _wake(ops, tenant, task_id, agent_id)
        metrics.count_transition(ended.state, task_id)


def _wake(ops: Operations, tenant: str, task_id: UUID, agent_id: str) -> None:
    ops.wakeups.bump(task_key(tenant, task_id))
    ops.wakeups.bump(lease_key(tenant, task_id))
    ops.wakeups.bump(queue_key(agent_id))
