"""Registering agents (native-api.md, Agents). Called by ``transports.native.agents``.

An agent is seen by its own tenant and by those it is shared with; written by its own tenant only. Everything else is
one NotFound, except that a taken id says so: ids are unique in the deployment, like host names.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import assert_never
from uuid import UUID

from app import metrics
from app.auth.caller import Caller
from app.errors import AgentBusy, AgentIdTaken, InvalidArgument, NotFound, PreconditionFailed
from app.ledger import agents
from app.ledger.agents import AgentTaken, Deleted, LiveTasks, RevisionMismatch
from app.ledger.rows import Agent, JsonObject
from app.ledger.wakeups import AGENTS_KEY, lease_key, task_key
from app.operations.agent_config import (
    AGENT_ID,
    EVERYBODY,
    RESERVED_IDS,
    is_visible,
    parse_config,
    shared_with,
    stored,
)
from app.operations.deps import Operations
from app.operations.paging import PageTokens
from app.protocol.models import format_timestamp
from app.protocol.states import TaskState

DEFAULT_PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class ShownAgent:
    """An agent as one tenant sees it, and its revision: the ETag."""

    body: JsonObject
    revision: int


async def put_agent(
    ops: Operations, caller: Caller, agent_id: str, body: object, holds: Callable[[int | None], bool]
) -> ShownAgent:
    """Create or replace an agent of the caller's tenant, if ``holds`` accepts the revision there is (None: none).

    Raises InvalidArgument, NotSupported, AgentIdTaken, PreconditionFailed.
    """
    if not AGENT_ID.fullmatch(agent_id):
        raise _bad_id("must match ^[a-z0-9][a-z0-9-]{0,62}$")
    if agent_id in RESERVED_IDS:
        raise _bad_id("is reserved")
    config = parse_config(body)
    outcome = await agents.put(
        ops.db,
        tenant=caller.tenant,
        agent_id=agent_id,
        config=stored(config),
        shared_with=shared_with(config),
        holds=holds,
    )
    match outcome:
        case Agent():
            ops.wakeups.bump(AGENTS_KEY)
            return _shown(outcome, caller.tenant)
        case AgentTaken():
            raise AgentIdTaken
        case RevisionMismatch():
            raise PreconditionFailed
        case _:
            assert_never(outcome)


async def get_agent(ops: Operations, caller: Caller, agent_id: str) -> ShownAgent:
    """An agent the caller may see. Raises NotFound."""
    agent = await agents.get(ops.db, agent_id) if AGENT_ID.fullmatch(agent_id) else None
    if agent is None or not is_visible(agent, caller.tenant):
        raise NotFound
    return _shown(agent, caller.tenant)


async def list_agents(
    ops: Operations, caller: Caller, *, page_size: int = DEFAULT_PAGE_SIZE, page_token: str = ""
) -> JsonObject:
    """``{"agents", "nextPageToken"}``: a page of the agents the caller may see, by id. Raises InvalidArgument."""
    tokens = PageTokens(ops.handles, "agents", [caller.tenant])
    after = tokens.after(page_token) or ""
    found = await agents.list_visible(ops.db, caller.tenant, after=after, limit=page_size + 1)
    page = found[:page_size]
    more = len(found) > page_size
    return {
        "agents": [_shown(agent, caller.tenant).body for agent in page],
        "nextPageToken": tokens.next(page[-1].agent_id) if more else "",
    }


async def delete_agent(ops: Operations, caller: Caller, agent_id: str, *, force: bool) -> None:
    """Delete an agent; with ``force`` its live tasks fail. Its tasks stay readable. Raises NotFound, AgentBusy."""
    if not AGENT_ID.fullmatch(agent_id):
        raise NotFound
    outcome = await agents.delete(ops.db, tenant=caller.tenant, agent_id=agent_id, force=force)
    match outcome:
        case None:
            raise NotFound
        case LiveTasks():
            raise AgentBusy
        case Deleted():
            ops.wakeups.bump(AGENTS_KEY)
            async for tenant, task_id in agents.fail_live_tasks(ops.db, agent_id):
                _tell(ops, tenant, task_id)
        case _:
            assert_never(outcome)


def _shown(agent: Agent, tenant: str) -> ShownAgent:
    """All settings, but of a foreign agent not with whom else it is shared."""
    body: JsonObject = {"agent": agent.agent_id, **agent.config, "updatedAt": format_timestamp(agent.updated_at)}
    if agent.tenant == tenant:
        body["tenant"] = agent.tenant
    else:
        body["sharedWith"] = _own_share(agent.shared_with, tenant)
    return ShownAgent(body, agent.revision)


def _own_share(shared: Collection[str], tenant: str) -> list[str]:
    return [EVERYBODY] if EVERYBODY in shared else [tenant]


def _tell(ops: Operations, tenant: str, task_id: UUID) -> None:
    metrics.count_transition(TaskState.FAILED, task_id)
    ops.wakeups.bump(task_key(tenant, task_id))
    ops.wakeups.bump(lease_key(tenant, task_id))


def _bad_id(description: str) -> InvalidArgument:
    return InvalidArgument(f"agent: {description}", violations=[("agent", description)])
