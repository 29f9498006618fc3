"""GetTask (A2A v1.0 §3.1.3)."""

from app.auth.caller import CallContext
from app.operations.agent_doors import AgentDoor
from app.operations.answers import Answer, load_of_agent, shown
from app.operations.deps import Operations
from app.protocol.models import GetTaskRequest


async def get_task(ops: Operations, ctx: CallContext, door: AgentDoor, request: GetTaskRequest) -> Answer:
    """The bare Task: the fold of all its events. Raises TaskNotFound, Unavailable."""
    loaded = await load_of_agent(ops, ctx.caller.tenant, door.agent_id, request.id)
    return Answer(await shown(ops, loaded, history_length=request.history_length))
