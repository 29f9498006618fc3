"""The shares of an agent, set by its owner (native-api.md, Agents). Called by ``transports.native.agents``."""

from typing import Annotated, assert_never

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from app.auth.caller import Caller
from app.errors import Conflict, InvalidArgument, NotFound
from app.ledger import agents, lanes
from app.ledger.rows import Agent, JsonObject, LaneSet, LanesFull
from app.ledger.wakeups import queue_key
from app.operations.agent_config import AGENT_ID, TENANT, Count, plain_number
from app.operations.deps import Operations
from app.operations.sending_options import MAX_FAIR_KEY_CHARACTERS
from app.protocol.models import parse

MIN_WEIGHT = 0.001
MAX_WEIGHT = 1000


class LaneShare(BaseModel):
    """``weight`` is relative: lanes that nobody has set have 1. Without ``maxRunning`` the lane has no limit."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    weight: Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT, strict=True), PlainSerializer(plain_number)]
    max_running: Annotated[Count, Field(ge=0)] | None = None


async def owned_agent(ops: Operations, caller: Caller, agent_id: str) -> Agent:
    """An agent of the caller's own tenant; one that is only shared with it is not. Raises NotFound."""
    agent = await agents.get(ops.db, agent_id) if AGENT_ID.fullmatch(agent_id) else None
    if agent is None or agent.deleted or agent.tenant != caller.tenant:
        raise NotFound
    return agent


async def put_lane(ops: Operations, agent: Agent, tenant: str, fair_key: str, body: object) -> JsonObject:
    """Set the share of a lane of ``agent``, which the caller owns (``owned_agent``); the lane as it is now.

    ``fair_key`` "" is the tenant's own lane: its share is the tenant's, whatever fair keys it uses. The lane need not
    have had a task. Raises NotFound for what is no tenant, InvalidArgument, Conflict where too many lanes wait unused.
    """
    if not TENANT.fullmatch(tenant):
        raise NotFound
    if len(fair_key) > MAX_FAIR_KEY_CHARACTERS:
        text = f"must have at most {MAX_FAIR_KEY_CHARACTERS} characters"
        raise InvalidArgument(f"fairKey: {text}", violations=[("fairKey", text)])
    share = parse(LaneShare, body, error=InvalidArgument)
    outcome = await lanes.set_share(
        ops.db,
        owner=agent.tenant,
        agent_id=agent.agent_id,
        tenant=tenant,
        fair_key=fair_key,
        weight=share.weight,
        max_running=share.max_running,
    )
    match outcome:
        case LaneSet():
            ops.wakeups.bump(queue_key(agent.agent_id))  # a greater limit makes waiting tasks claimable
            lane: JsonObject = {"agent": agent.agent_id, "tenant": tenant, "fairKey": fair_key}
            return lane | share.model_dump(by_alias=True, exclude_none=True)
        case LanesFull():
            raise Conflict("Too many lanes of this agent are set that have never had a task")
        case None:
            raise NotFound
        case _:
            assert_never(outcome)
