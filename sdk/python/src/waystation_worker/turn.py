"""Works one leased turn through, from calling the handler to the event that ends the lease. Called by the claim loop.

Whatever the handler does, the lease is ended by exactly one of: the handler itself, its result, CANCELED after a
signal, a retry, a release at shutdown, or somebody else (lost). Nothing is sent after that.
"""

import asyncio
import logging
from typing import Any

from waystation_worker.agent import Agent
from waystation_worker.broker import Broker
from waystation_worker.content import status_event
from waystation_worker.context import Context
from waystation_worker.errors import BrokerRefused, LeaseLost, RetryLater, TaskFailed
from waystation_worker.held import HeldLease

logger = logging.getLogger(__name__)

ERROR_CHARS = 2000
"""How much of an error's text goes to the broker; the traceback stays in this process's log."""


async def work_turn(agent: Agent, held: HeldLease, broker: Broker) -> None:
    """Calls the agent's handler for the lease and ends the lease by what comes of it. Raises nothing."""
    context = Context(held)
    try:
        outcome = await _outcome(agent, held, context)
        if held.over:
            _remark(held, outcome)
        else:
            await _settle(agent, held, context, outcome, broker)
    except LeaseLost as lost:
        held.lose(lost)
    except BrokerRefused as refused:
        logger.error("task %s: the broker refuses how the turn ends: %s", held.lease.task_id, refused)
    finally:
        held.outbox.close(LeaseLost("TURN_OVER"))


async def _outcome(agent: Agent, held: HeldLease, context: Context) -> Any:
    """What the handler returned, or the exception that it raised."""
    if held.stop is not None:
        return asyncio.CancelledError()
    done = await held.work(agent.handler(context))
    if done.cancelled():
        return asyncio.CancelledError()
    return done.exception() or done.result()


def _remark(held: HeldLease, outcome: object) -> None:
    if isinstance(outcome, Exception):
        logger.warning("task %s: the handler failed after its turn was over", held.lease.task_id, exc_info=outcome)


async def _settle(agent: Agent, held: HeldLease, context: Context, outcome: Any, broker: Broker) -> None:
    """Ends a lease that the handler has left open."""
    try:
        if not isinstance(outcome, BaseException):
            await held.finish(status_event("COMPLETED", outcome))
        elif isinstance(outcome, TaskFailed):
            await held.finish(status_event("FAILED", outcome.content))
        elif isinstance(outcome, BrokerRefused):
            raise outcome
        elif held.stop is not None:
            await _settle_stopped(agent, held, context, broker)
        else:
            await _settle_error(held, outcome, broker)
    except (TypeError, ValueError) as error:  # the content is not JSON
        await _settle_error(held, error, broker)
    except BrokerRefused as refused:
        # Another attempt would say the same again (A2A v1.0 §5.4, InvalidAgentResponse).
        logger.error("task %s: the broker refuses what the agent says: %s", held.lease.task_id, refused)
        await held.finish(status_event("FAILED", f"Invalid agent response: {refused}"[:ERROR_CHARS]))


async def _settle_stopped(agent: Agent, held: HeldLease, context: Context, broker: Broker) -> None:
    """The handler has stopped because it was asked to."""
    if held.stop == "drain":
        held.outbox.close(LeaseLost("DRAINED"))
        await broker.release(held.lease.id)
    elif held.stop == "deadline":
        await held.finish(status_event("FAILED", "The deadline has passed"))
    else:
        if agent.cancel is not None:
            done = await held.work(agent.cancel(context))
            if not done.cancelled() and (error := done.exception()) is not None:
                logger.warning("task %s: the executor's cancel() failed", held.lease.task_id, exc_info=error)
        if not held.over:
            await held.finish(status_event("CANCELED"))


async def _settle_error(held: HeldLease, error: BaseException, broker: Broker) -> None:
    """The handler has failed: another attempt, which the broker grants or turns into FAILED."""
    delay = error.delay_seconds if isinstance(error, RetryLater) else None
    logger.warning("task %s: attempt %d failed", held.lease.task_id, held.lease.attempt, exc_info=error)
    await held.outbox.flush()
    kind = type(error).__name__
    text = str(error) or kind if isinstance(error, RetryLater) else f"{kind}: {error}"
    sendable = text[:ERROR_CHARS].encode(errors="replace").decode()
    await broker.retry(held.lease.id, sendable, delay)
