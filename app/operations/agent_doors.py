"""Which agent a request is for, and whether its caller may know of it. Called by every A2A door before anything else.

An agent that is unknown, deleted or private to others is one and the same NotFound. Unsharing stops new sends only: a
tenant that has tasks of the agent keeps reading and canceling them (native-api.md; product.md, agent).
"""

from dataclasses import dataclass

from app.auth.caller import Caller
from app.errors import NotFound
from app.ledger import tasks
from app.ledger.rows import Agent
from app.operations.agent_config import is_visible
from app.operations.deps import Operations


@dataclass(frozen=True, slots=True)
class AgentDoor:
    """An agent as one caller meets it. ``may_send`` is false when only the caller's old tasks are left to it."""

    agent: Agent
    may_send: bool

    @property
    def agent_id(self) -> str:
        return self.agent.agent_id

    def require_send(self) -> None:
        """Raise NotFound, as for an unknown agent, when no message may be sent."""
        if not self.may_send:
            raise NotFound


async def open_door(ops: Operations, caller: Caller, agent_id: str) -> AgentDoor:
    """The agent behind a door. Raises NotFound for every agent the caller must not know of."""
    agent = await ops.directory.get(agent_id)
    if agent is not None and is_visible(agent, caller.tenant):
        return AgentDoor(agent, may_send=True)
    # Asked for unknown ids too: the same statements, whatever the reason (security.md, Tenant isolation).
    page = await tasks.list_tasks(ops.db, caller.tenant, agent_id=agent_id, limit=1)
    if agent is None or agent.deleted or not page.tasks:
        raise NotFound
    return AgentDoor(agent, may_send=False)
