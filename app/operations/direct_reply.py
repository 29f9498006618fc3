"""The Message that an agent registered with ``reply: "message"`` may answer with (a2a-server.md, Streaming).

Called by SendMessage, when it blocks, and by SendStreamingMessage.
"""

import asyncio
from dataclasses import dataclass

from app.auth.caller import CallContext
from app.ledger import tasks
from app.ledger.rows import FirstWord, JsonObject, Sent
from app.ledger.wakeups import task_key
from app.operations.agent_doors import AgentDoor
from app.operations.deps import Operations
from app.protocol.events import DIRECT_REPLY, RESUME_EXTENSION

REPLY_SECONDS = 10.0
FIRST_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class DirectReply:
    """A worker's Message, and its place in the task's log."""

    seq: int
    message: JsonObject


async def direct_reply(ops: Operations, ctx: CallContext, door: AgentDoor, sent: Sent) -> DirectReply | None:
    """The direct reply to this message, waited for until the worker's first own event in the message's turn.

    None, and the answer is the task, when the agent answers with tasks, when that event is another one, when the turn
    ends without one, after 10 s (or BLOCKING_WAIT_SECONDS, if that is less), and when the process drains. A duplicate
    gets its first sending's reply at once. Raises Unavailable.
    """
    if door.agent.config["reply"] != "message":
        return None
    tenant, clock = ctx.caller.tenant, asyncio.get_running_loop().time
    deadline = clock() + min(REPLY_SECONDS, ops.blocking_wait_seconds)
    pause = 0.0 if sent.replayed else FIRST_LOOK_SECONDS
    with ops.wakeups.watch(task_key(tenant, sent.task_id)) as signal:
        while True:
            await signal.wait(min(pause, deadline - clock()))
            word = await tasks.first_word(ops.db, tenant, sent.task_id, sent.turn)
            if word is None or word.seq is not None or not word.turn_open:
                return None if word is None else _reply(word)
            if clock() >= deadline or ops.drain.is_set() or await ctx.gone():
                return None
            pause = ops.poll_after()


def _reply(word: FirstWord) -> DirectReply | None:
    if word.seq is None or word.status is None:
        return None
    update: JsonObject = word.status["statusUpdate"]
    marks: JsonObject = update.get("metadata", {}).get(RESUME_EXTENSION, {})
    return DirectReply(word.seq, update["status"]["message"]) if marks.get(DIRECT_REPLY) is True else None
