"""Agent cards as they leave the broker: its doors and its ways to get in, signed (a2a-server.md, Agent card).

Made once per process by ``app.main``; called by ``operations.agent_card`` and ``operations.catalogue``.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, Final

from app import offload
from app.auth.card_keys import CardKeys
from app.ledger.rows import Agent, JsonObject
from app.protocol import strict_json
from app.protocol.card import BEARER_TOKENS, Security, Site, interfaces, served_card
from app.protocol.card_payload import signed_payloads

JWKS_PATH: Final = "/.well-known/jwks.json"
EXTENDED: Final = "extendedCard"
MAX_REMEMBERED: Final = 4096


class ServedCards:
    """``secrets`` are ``settings.secret_keys()``; ``security`` is for cards whose author names none."""

    def __init__(self, secrets: Sequence[bytes], security: Security = BEARER_TOKENS) -> None:
        self._keys = CardKeys(secrets)
        self._security = security
        self._signatures: dict[bytes, list[JsonObject]] = {}

    @property
    def jwks(self) -> JsonObject:
        """What the signatures are verified with, found at JWKS_PATH."""
        return self._keys.jwks

    async def card(self, agent: Agent, site: Site) -> JsonObject:
        """The agent's AgentCard for a client at ``site``: equal on all replicas, byte for byte."""
        return await self._signed(agent, agent.config["card"], site)

    async def extended(self, agent: Agent, site: Site) -> JsonObject | None:
        """The agent's extended AgentCard, if one is registered."""
        card: JsonObject | None = agent.config.get(EXTENDED)
        return None if card is None else await self._signed(agent, card, site)

    async def _signed(self, agent: Agent, card: JsonObject, site: Site) -> JsonObject:
        doors = interfaces(site, agent.agent_id)
        served = served_card(card, doors, security=self._security, extended=EXTENDED in agent.config)
        jku = site.service + JWKS_PATH
        return {**served, "signatures": await self._sign(served, jku)}

    async def _sign(self, served: dict[str, Any], jku: str) -> list[JsonObject]:
        """Signing takes longer than all the rest, so signatures are remembered by what they cover."""
        printed = strict_json.dumps([jku, served]).encode()
        digest = hashlib.sha256(printed).digest()
        signatures = self._signatures.get(digest)
        if signatures is None:
            await asyncio.sleep(0)  # a page of the catalogue has a hundred cards: others have their turn between them
            signatures = await offload.run(
                len(printed), lambda: [self._keys.sign(payload, jku) for payload in signed_payloads(served)]
            )
            while len(self._signatures) >= MAX_REMEMBERED:
                del self._signatures[next(iter(self._signatures))]
            self._signatures[digest] = signatures
        return signatures
