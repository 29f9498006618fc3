"""Who may see a card, what it declares and forbids, and GetExtendedAgentCard (A2A v1.0 §3.1.11, §3.3.4)."""

from dataclasses import dataclass
from datetime import datetime

from app.auth.caller import CallContext, Caller
from app.errors import (
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    NotFound,
    PushNotificationNotSupported,
    Unauthenticated,
    UnsupportedOperation,
)
from app.ledger.rows import Agent, JsonObject
from app.operations.agent_config import is_visible
from app.operations.agent_doors import AgentDoor
from app.operations.answers import Answer
from app.operations.deps import Operations
from app.operations.served_cards import EXTENDED
from app.protocol.card import Site
from app.protocol.events import RESUME_EXTENSION
from app.protocol.models import GetExtendedAgentCardRequest


@dataclass(frozen=True, slots=True)
class ShownCard:
    """An agent's card as ``caller`` may see it, with the doors of one site; ``public``: so may everybody."""

    agent_id: str
    card: JsonObject
    public: bool
    updated_at: datetime


async def show_card(ops: Operations, caller: Caller | None, agent_id: str, site: Site) -> ShownCard:
    """The agent's card for ``caller`` (None: no token came), who asks at ``site``.

    Raises Unauthenticated without a token for an unknown agent and a card that is not public alike; NotFound with a
    token for an unknown agent and one that is not shared with its tenant alike (a2a-server.md, Agent card).
    """
    agent = await ops.directory.get(agent_id)
    if agent is not None and not agent.deleted:
        public = is_public(agent)
        if public or (caller is not None and is_visible(agent, caller.tenant)):
            return ShownCard(agent.agent_id, await ops.cards.card(agent, site), public, agent.updated_at)
    raise Unauthenticated if caller is None else NotFound


async def get_extended_agent_card(
    ops: Operations, ctx: CallContext, door: AgentDoor, _request: GetExtendedAgentCardRequest
) -> Answer:
    """The extended card, for those who see the agent's card.

    Raises NotFound, UnsupportedOperation when that card declares no extended one, and ExtendedAgentCardNotConfigured
    when it declares one that was never registered.
    """
    door.require_send()
    if not capabilities(door.agent).get("extendedAgentCard", False):
        raise UnsupportedOperation("The agent's card does not declare an extended card")
    card = await ops.cards.extended(door.agent, ctx.site())
    if card is None:
        raise ExtendedAgentCardNotConfigured
    return Answer(card)


def is_public(agent: Agent) -> bool:
    """Whether the agent's card is shown without a token."""
    return bool(agent.config["cardVisibility"] == "public")


def capabilities(agent: Agent) -> JsonObject:
    """What the agent's author declared; a registered extended card is declared by that."""
    declared: JsonObject = agent.config["card"].get("capabilities", {})
    return declared | {"extendedAgentCard": True} if EXTENDED in agent.config else declared


def require_push(agent: Agent) -> None:
    """Raise PushNotificationNotSupported when the author turned push notifications off (A2A v1.0 §3.3.4)."""
    if not capabilities(agent).get("pushNotifications", True):
        raise PushNotificationNotSupported("This agent sends no push notifications")


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
            raise ExtensionSupportRequired(
                f"This agent requires the extension {uri}: name it in A2A-Extensions", metadata={"extension": uri}
            )
    return asked & {RESUME_EXTENSION, *(str(extension.get("uri")) for extension in declared)}
