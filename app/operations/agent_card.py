"""The public card's rules, and GetExtendedAgentCard (A2A v1.0 §3.1.11)."""

from dataclasses import dataclass
from datetime import datetime

from app.auth.caller import CallContext, Caller
from app.errors import (
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    NotFound,
    Unauthenticated,
    UnsupportedOperation,
)
from app.ledger.rows import Agent, JsonObject
from app.operations.agent_config import is_visible
from app.operations.agent_doors import AgentDoor
from app.operations.answers import Answer
from app.operations.deps import Operations
from app.protocol.events import RESUME_EXTENSION
from app.protocol.models import GetExtendedAgentCardRequest


@dataclass(frozen=True, slots=True)
class ShownCard:
    """A registered card as ``caller`` may see it; ``public``: so may everybody."""

    agent_id: str
    card: JsonObject
    public: bool
    updated_at: datetime


async def show_card(ops: Operations, caller: Caller | None, agent_id: str) -> ShownCard:
    """The registered card of the agent, for ``caller`` (None: no token came).

    Raises Unauthenticated without a token for an unknown agent and a card that is not public alike; NotFound with a
    token for an unknown agent and one that is not shared with its tenant alike (a2a-server.md, Agent card).
    """
    agent = await ops.directory.get(agent_id)
    if agent is not None and not agent.deleted:
        public = agent.config["cardVisibility"] == "public"
        if public or (caller is not None and is_visible(agent, caller.tenant)):
            return ShownCard(agent.agent_id, agent.config["card"], public, agent.updated_at)
    raise Unauthenticated if caller is None else NotFound


async def get_extended_agent_card(
    _ops: Operations, _ctx: CallContext, door: AgentDoor, _request: GetExtendedAgentCardRequest
) -> Answer:
    """Raises UnsupportedOperation when the card does not declare one; extended cards cannot be registered yet, so a
    declared one is ExtendedAgentCardNotConfigured."""
    if not capabilities(door.agent).get("extendedAgentCard", False):
        raise UnsupportedOperation("The agent's card does not declare an extended card")
    raise ExtendedAgentCardNotConfigured


def capabilities(agent: Agent) -> JsonObject:
    """What the agent's author declared."""
    declared: JsonObject = agent.config["card"].get("capabilities", {})
    return declared


def require_streaming(agent: Agent) -> None:
    """Raise UnsupportedOperation when the author turned streaming off (A2A v1.0 §3.3.4)."""
    if not capabilities(agent).get("streaming", True):
        raise UnsupportedOperation("This agent does not stream")


def active_extensions(agent: Agent, asked: frozenset[str]) -> frozenset[str]:
    """Of the extensions a client asked for, those that the broker or the agent's card knows; others are ignored.

    Raises ExtensionSupportRequired when the card requires one that the client did not ask for (A2A v1.0 §3.3.4).
    """
    declared: list[JsonObject] = capabilities(agent).get("extensions", [])
    for extension in declared:
        if extension.get("required") and extension.get("uri") not in asked:
            uri = str(extension.get("uri", ""))
            raise ExtensionSupportRequired(f"This agent requires the extension {uri}", metadata={"extension": uri})
    return asked & {RESUME_EXTENSION, *(str(extension.get("uri")) for extension in declared)}
