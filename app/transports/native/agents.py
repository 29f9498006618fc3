"""The agents' routes of ``/v1`` (native-api.md, Agents). Mounted by ``app.main``."""

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from app.errors import InvalidArgument, PreconditionFailed
from app.operations import agents, lanes
from app.operations.agent_config import AgentConfig
from app.operations.agents import ShownAgent
from app.operations.lanes import LaneShare
from app.protocol import strict_json
from app.protocol.models import parse
from app.protocol.models.scalars import PageSize, Text
from app.transports.call_context import Call
from app.transports.endpoints import Endpoint

READ = ("agents:read",)
WRITE = ("agents:admin",)
_ETAGS = re.compile(r'\s*(?:(?:W/)?"[^"]*"\s*(?:,\s*|$))+')
_ETAG = re.compile(r'(W/)?"([^"]*)"')


class AgentList(BaseModel):
    """The query of ``GET /v1/agents``."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    page_size: PageSize = None
    page_token: Annotated[Text, Field(max_length=2048)] = ""


async def put_agent(call: Call) -> Response:
    holds = precondition(call.request.headers.getlist("if-match"), call.request.headers.getlist("if-none-match"))
    agent_id, body = call.path("agent"), await call.json()
    return _agent(await agents.put_agent(call.gateway.operations, call.caller, agent_id, body, holds))


async def get_agent(call: Call) -> Response:
    shown = await agents.get_agent(call.gateway.operations, call.caller, call.path("agent"))
    known = ",".join(call.request.headers.getlist("if-none-match"))
    if known and (known.strip() == "*" or str(shown.revision) in _revisions(known, weak=True)):
        return Response(status_code=304, headers={"ETag": _etag(shown)})
    return _agent(shown)


async def list_agents(call: Call) -> Response:
    query = parse(AgentList, call.query(), error=InvalidArgument)
    body = await agents.list_agents(
        call.gateway.operations,
        call.caller,
        page_size=query.page_size or agents.DEFAULT_PAGE_SIZE,
        page_token=query.page_token,
    )
    return Response(strict_json.dumps(body), media_type="application/json")


async def delete_agent(call: Call) -> Response:
    force = call.query().get("force", "false")
    if force not in ("true", "false"):
        raise InvalidArgument("force: must be true or false", violations=[("force", "must be true or false")])
    await agents.delete_agent(call.gateway.operations, call.caller, call.path("agent"), force=force == "true")
    return Response(status_code=204)


async def put_lane(call: Call) -> Response:
    agent = await lanes.owned_agent(call.gateway.operations, call.caller, call.path("agent"))  # access, before the body
    tenant, fair_key, body = call.path("tenant"), call.path("fair_key"), await call.json()
    lane = await lanes.put_lane(call.gateway.operations, agent, tenant, fair_key, body)
    return Response(strict_json.dumps(lane), media_type="application/json")


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/agents", READ, list_agents, "listAgents", "The agents you may use", tags=("agents",),
        query={"pageSize": "1..100, default 50", "pageToken": "nextPageToken of the page before"},
    ),
    Endpoint("GET", "/v1/agents/{agent}", READ, get_agent, "getAgent", "One agent", tags=("agents",)),
    Endpoint(
        "PUT", "/v1/agents/{agent}", WRITE, put_agent, "putAgent", "Create or replace an agent", tags=("agents",),
        request=AgentConfig,
    ),
    Endpoint(
        "DELETE", "/v1/agents/{agent}", WRITE, delete_agent, "deleteAgent", "Delete an agent", tags=("agents",),
        query={"force": "true fails its live tasks"},
    ),
    Endpoint(
        "PUT", "/v1/agents/{agent}/lanes/{tenant}", WRITE, put_lane, "putLane",
        "Set a tenant's share of an agent", tags=("agents",), request=LaneShare,
    ),
    Endpoint(
        "PUT", "/v1/agents/{agent}/lanes/{tenant}/{fair_key:path}", WRITE, put_lane, "putFairKeyLane",
        "Set the share of a fair key inside its tenant", tags=("agents",), request=LaneShare,
    ),
)  # fmt: skip


def precondition(if_match: list[str], if_none_match: list[str]) -> Callable[[int | None], bool]:
    """What RFC 9110 §13.1.1 and §13.1.2 ask of the current revision (None: there is no such agent) before a PUT.

    Raises PreconditionFailed for a header that is no list of entity tags: it can match nothing.
    """
    match, none_match = ",".join(if_match).strip(), ",".join(if_none_match).strip()
    wanted = _revisions(match, weak=False) if match not in ("", "*") else set[str]()
    unwanted = _revisions(none_match, weak=True) if none_match not in ("", "*") else set[str]()

    def holds(current: int | None) -> bool:
        if match and (current is None or (match != "*" and str(current) not in wanted)):
            return False
        return not none_match or current is None or (none_match != "*" and str(current) not in unwanted)

    return holds


def _revisions(header: str, *, weak: bool) -> set[str]:
    if not _ETAGS.fullmatch(header):
        raise PreconditionFailed
    return {tag for is_weak, tag in _ETAG.findall(header) if weak or not is_weak}


def _agent(shown: ShownAgent) -> Response:
    headers = {"ETag": _etag(shown), "Cache-Control": "no-cache"}
    return Response(strict_json.dumps(shown.body), headers=headers, media_type="application/json")


def _etag(shown: ShownAgent) -> str:
    return f'"{shown.revision}"'
