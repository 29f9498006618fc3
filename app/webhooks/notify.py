"""One push notification as an HTTP request, and what came of it. Called by ``webhooks.sender`` and ``webhooks.trial``.

A2A v1.0 §4.3.3: POST of a StreamResponse with the config's token and credentials; signed as Standard Webhooks has it.
"""

import importlib.metadata
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from app.auth.vault import Vault, VaultError
from app.clock import Clock, system_clock
from app.ledger import webhook_secrets
from app.ledger.pool import Database
from app.ledger.push_configs import PushSecret
from app.net.egress import Egress, EgressFailed, EgressRefused
from app.webhooks import signing
from app.webhooks.schedule import parse_retry_after

log = logging.getLogger("waystation.webhooks")

TIMEOUT_SECONDS: Final = 15.0
"""a2a-server.md: 10 to 30 s."""
MAX_ANSWER_BYTES: Final = 64 * 1024
GONE: Final = 410
KEPT_SECONDS: Final = 5.0
KEPT_TENANTS: Final = 1000
_SILENT: Final = frozenset({"dns", "connect", "tls", "timeout"})
_USER_AGENT: Final = f"Waystation/{importlib.metadata.version('waystation')}"


@dataclass(frozen=True, slots=True)
class Notification:
    """``webhook_id`` is the same on every attempt; ``secret`` is a sealed PushSecret; ``body`` is sent byte by byte."""

    webhook_id: str
    tenant: str
    config_id: str
    url: str
    scheme: str | None
    secret: bytes | None
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Outcome:
    """``status`` is None when there was no answer; ``error`` is None when it was delivered, else for the tenant to see.

    ``silent``: the receiver seems to be down. ``final``: a further attempt would be refused as well.
    """

    status: int | None
    error: str | None
    silent: bool = False
    final: bool = False
    retry_after: float | None = None

    @property
    def delivered(self) -> bool:
        return self.error is None


class Notifier:
    """One per process. ``timeout_seconds`` bounds a whole request, its name's resolution included."""

    def __init__(
        self,
        db: Database,
        egress: Egress,
        vault: Vault,
        *,
        clock: Clock = system_clock,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._db = db
        self._egress = egress
        self._vault = vault
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._keys: dict[str, tuple[float, Sequence[bytes]]] = {}

    async def post(self, one: Notification) -> Outcome:
        """Send it once; every failure of the receiver is an outcome. Raises Unavailable before anything was sent."""
        try:
            headers = await self._headers(one)
        except VaultError:
            # an operator has taken a key away that is still needed, and can bring it back
            log.error("the secrets of a push notification config cannot be opened with SECRET_KEY")
            return Outcome(None, "The stored credentials cannot be read")
        try:
            answer = await self._egress.request(
                "POST",
                one.url,
                headers=headers,
                content=one.body,
                timeout=self._timeout_seconds,
                max_bytes=MAX_ANSWER_BYTES,
            )
        except EgressRefused as refusal:
            return Outcome(None, str(refusal), final=True)
        except EgressFailed as failure:
            return Outcome(None, str(failure), silent=failure.kind in _SILENT)
        if 200 <= answer.status < 300:
            return Outcome(answer.status, None)
        return Outcome(
            answer.status,
            f"Status {answer.status}",
            final=answer.status == GONE,
            retry_after=parse_retry_after(answer.headers.get("retry-after"), datetime.now(UTC)),
        )

    async def _headers(self, one: Notification) -> dict[str, str]:
        secret = PushSecret.open(self._vault, one.secret, tenant=one.tenant, config_id=one.config_id, url=one.url)
        headers = {
            "Content-Type": "application/a2a+json",
            "A2A-Version": "1.0",
            "User-Agent": _USER_AGENT,
            **one.headers,
            **signing.headers(await self._signing_keys(one.tenant), one.webhook_id, int(self._clock()), one.body),
        }
        if one.scheme:
            headers["Authorization"] = f"{one.scheme} {secret.credentials}".rstrip()
        if secret.token:
            headers["X-A2A-Notification-Token"] = secret.token
        return headers

    async def _signing_keys(self, tenant: str) -> Sequence[bytes]:
        """The tenant's secrets, kept for a few seconds: a burst does not read them with every event."""
        read_at, keys = self._keys.get(tenant, (float("-inf"), ()))
        if time.monotonic() - read_at > KEPT_SECONDS:
            keys = [secret.key for secret in await webhook_secrets.live(self._db, self._vault, tenant)]
            if len(self._keys) >= KEPT_TENANTS:
                self._keys.clear()
            self._keys[tenant] = (time.monotonic(), keys)
        return keys
