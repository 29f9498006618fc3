"""SendMessage (A2A v1.0 §3.1.1, §3.2.2): a message into the ledger, then the answer its sender wants to wait for.

``accept`` is shared with SendStreamingMessage.
"""

import asyncio
import re
from typing import assert_never
from uuid import UUID

from app import metrics, offload
from app.auth.caller import CallContext
from app.errors import (
    IdempotencyConflict,
    InvalidParams,
    TaskBusy,
    TaskNotFound,
    UnsupportedOperation,
)
from app.ledger import tasks, transitions
from app.ledger.inputs import Keys
from app.ledger.push_configs import NewPushConfig, TooManyConfigs
from app.ledger.rows import (
    Agent,
    AlreadyTerminal,
    Busy,
    ContextMismatch,
    IdempotencyClash,
    JsonObject,
    Sent,
    TaskMissing,
)
from app.ledger.wakeups import lease_key, queue_key, task_key
from app.operations.agent_doors import AgentDoor
from app.operations.answers import Answer, facts_of, parse_task_id, shown
from app.operations.deps import Operations
from app.operations.direct_reply import direct_reply
from app.operations.input_modes import require_input_modes
from app.operations.push_configs import inline_config, too_many
from app.operations.sending_options import SendingOptions, parse_options
from app.protocol.canonical import sha256_of
from app.protocol.events import RESUME_EXTENSION
from app.protocol.models import Message, Role, SendMessageConfiguration, SendMessageRequest, dump
from app.protocol.states import TaskState
from app.protocol.strict_json import dumps

TRACE_METADATA = frozenset({"traceparent", "tracestate", "baggage"})
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
OPEN_TURNS = frozenset({"queued", "running"})
FIRST_LOOK_SECONDS = 0.2
"""A turn that has just begun is not looked at before this, unless a wake-up says so."""


async def send_message(ops: Operations, ctx: CallContext, door: AgentDoor, request: SendMessageRequest) -> Answer:
    """The Task after the sender's own turn, or at once with ``returnImmediately``; the Message of an agent that answers
    with one (``direct_reply``).

    The wait ends with the turn (terminal, interrupted, or handed on to a queued turn), after BLOCKING_WAIT_SECONDS,
    or when the process drains; the Task as it stands then is the answer, never an error.
    """
    configuration = request.configuration or SendMessageConfiguration()
    sent = await accept(ops, ctx, door, request)
    if not configuration.return_immediately:
        deadline = asyncio.get_running_loop().time() + ops.blocking_wait_seconds
        if (reply := await direct_reply(ops, ctx, door, sent)) is not None:
            return Answer({"message": reply.message}, replayed=sent.replayed)
        await _turn_end(ops, ctx, sent, deadline)
    loaded = await tasks.load(ops.db, ctx.caller.tenant, sent.task_id)
    if loaded is None:
        raise TaskNotFound
    task = await shown(ops, loaded, history_length=configuration.history_length)
    return Answer({"task": task}, replayed=sent.replayed)


async def accept(ops: Operations, ctx: CallContext, door: AgentDoor, request: SendMessageRequest) -> Sent:
    """Store the message, exactly once per key; it is durable when this returns.

    Raises TaskNotFound, UnsupportedOperation (terminal), TaskBusy, IdempotencyConflict, InvalidParams (another
    contextId), ContentTypeNotSupported, PushNotificationNotSupported, PermissionDenied (a config without push:write),
    NotSupported, Unavailable; nothing is stored then.
    """
    door.require_send()
    if request.message.role is not Role.USER:
        raise InvalidParams("message.role: must be ROLE_USER", violations=[("message.role", "must be ROLE_USER")])
    require_input_modes(door.agent, request.message)
    options = parse_options(request.metadata)
    configuration = request.configuration or SendMessageConfiguration()
    config = await inline_config(ops, ctx, door, configuration.task_push_notification_config)
    body, keys = await offload.run(ctx.body_bytes, lambda: _printed(ctx, door.agent, request.message))
    with metrics.timed(metrics.SUBMIT_SECONDS):
        if request.message.task_id:
            sent = await _send(ops, ctx, door.agent_id, request.message, body, keys, options, config)
        else:
            sent = await _submit(ops, ctx, door.agent, request.message, body, keys, options, config)
    if not sent.replayed:
        ops.wakeups.bump(task_key(ctx.caller.tenant, sent.task_id))
        ops.wakeups.bump(queue_key(door.agent_id))
    return sent


def _printed(ctx: CallContext, agent: Agent, parsed: Message) -> tuple[str, Keys]:
    """The message as JSON text to be kept, and its keys."""
    message = dump(parsed)
    return dumps(_stored(message, ctx.traceparent)), _keys(ctx, agent, message)


def _keys(ctx: CallContext, agent: Agent, message: JsonObject) -> Keys:
    """The hash is over the parsed Message, so it is equal on all doors (resume-contract.md, Duplicates)."""
    metadata: JsonObject = message.get("metadata", {})
    if not TRACE_METADATA.isdisjoint(metadata):
        kept = {key: value for key, value in metadata.items() if key not in TRACE_METADATA}
        message = {key: value for key, value in message.items() if key != "metadata"}
        message |= {"metadata": kept} if kept else {}
    counts = agent.config["idempotency"] == "message_id"
    return Keys(
        message_id=message["messageId"] if counts else None,
        header=ctx.idempotency_key,
        request_hash=sha256_of(message),
    )


def _stored(message: JsonObject, trace: str | None) -> JsonObject:
    """The message as it is kept: its ids are the ledger's to say, its sender's trace goes on to the worker."""
    stored = {key: value for key, value in message.items() if key not in ("taskId", "contextId")}
    if trace and TRACEPARENT.fullmatch(trace):
        stored["metadata"] = {**stored.get("metadata", {}), RESUME_EXTENSION: {"traceparent": trace}}
    return stored


async def _submit(
    ops: Operations,
    ctx: CallContext,
    agent: Agent,
    message: Message,
    body: str,
    keys: Keys,
    options: SendingOptions,
    config: NewPushConfig | None,
) -> Sent:
    outcome = await transitions.submit(
        ops.db,
        tenant=ctx.caller.tenant,
        subject=ctx.caller.subject,
        agent_id=agent.agent_id,
        context_id=message.context_id or None,
        message=body,
        keys=keys,
        settings=options.for_new_task(agent),
        push_config=config,
    )
    match outcome:
        case Sent():
            if not outcome.replayed:
                metrics.count_transition(TaskState.SUBMITTED)
            return outcome
        case IdempotencyClash():
            raise IdempotencyConflict
        case _:
            assert_never(outcome)


async def _send(
    ops: Operations,
    ctx: CallContext,
    agent_id: str,
    message: Message,
    body: str,
    keys: Keys,
    options: SendingOptions,
    config: NewPushConfig | None,
) -> Sent:
    options.refuse_on_follow_up()
    task_id = parse_task_id(message.task_id)
    if task_id is None:
        raise TaskNotFound
    outcome = await transitions.send(
        ops.db,
        tenant=ctx.caller.tenant,
        subject=ctx.caller.subject,
        agent_id=agent_id,
        task_id=task_id,
        context_id=message.context_id or None,
        message=body,
        keys=keys,
        on_busy=options.on_busy,
        push_config=config,
    )
    match outcome:
        case Sent():
            return outcome
        case IdempotencyClash():
            raise IdempotencyConflict
        case TaskMissing():
            raise TaskNotFound
        case ContextMismatch():
            text = "is not the contextId of this task"
            raise InvalidParams(f"message.contextId: {text}", violations=[("message.contextId", text)])
        case Busy():
            raise TaskBusy
        case TooManyConfigs():
            raise too_many()
        case AlreadyTerminal():
            raise UnsupportedOperation(
                "The task is in a terminal state; send a new one with the same contextId and referenceTaskIds",
                metadata=facts_of(outcome.state, outcome.terminal_seq),
            )
        case _:
            assert_never(outcome)


async def _turn_end(ops: Operations, ctx: CallContext, sent: Sent, deadline: float) -> None:
    tenant = ctx.caller.tenant
    pause = 0.0 if sent.replayed else min(FIRST_LOOK_SECONDS, ops.blocking_wait_seconds)
    with ops.wakeups.watch(lease_key(tenant, sent.task_id)) as signal:  # a turn ends with a lease, not with every event
        while True:
            await signal.wait(pause)
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or ops.drain.is_set() or not await _turn_is_open(ops, tenant, sent.task_id, sent.turn):
                return
            if await ctx.gone():
                return
            pause = min(left, ops.poll_after())


async def _turn_is_open(ops: Operations, tenant: str, task_id: UUID, turn_no: int) -> bool:
    turn = await tasks.turn(ops.db, tenant, task_id, turn_no)
    return turn is not None and turn.state in OPEN_TURNS
