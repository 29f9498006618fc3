"""A tenant's signing secrets for webhooks (Standard Webhooks): one, or two while it is being rotated.

They are made when they are first asked for. Called by the webhook sender and by the native API.
"""

import secrets as random_secrets
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import uuid4

from app.auth.vault import Vault
from app.ledger.pool import Database, Record

SECRET_BYTES = 32

LIVE: LiteralString = "SELECT * FROM webhook_secrets_live($1)"
ENSURE: LiteralString = "SELECT * FROM webhook_secrets_ensure($1, $2, $3)"
ROTATE: LiteralString = "SELECT * FROM webhook_secrets_rotate($1, $2, $3, $4)"


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """``key`` is the raw secret; ``expires_at`` is None for the one that stays, set for one that is being replaced."""

    secret_id: str
    key: bytes
    created_at: datetime
    expires_at: datetime | None


async def live(db: Database, vault: Vault, tenant: str) -> list[SigningSecret]:
    """The secrets to sign with, the newest first: one, or two while rotating. Raises VaultError, Unavailable."""
    rows = await db.fetch(LIVE, tenant)
    if not rows:
        rows = await db.fetch(ENSURE, tenant, *_made(vault, tenant))
    return _opened(vault, tenant, rows)


async def rotate(db: Database, vault: Vault, tenant: str, *, overlap_seconds: float) -> list[SigningSecret]:
    """Make a new secret; the newest of the old ones signs beside it for ``overlap_seconds``, others end at once.

    Answers as ``live``. Raises VaultError, Unavailable.
    """
    return _opened(vault, tenant, await db.fetch(ROTATE, tenant, *_made(vault, tenant), overlap_seconds))


def _made(vault: Vault, tenant: str) -> tuple[str, bytes]:
    secret_id = str(uuid4())
    return secret_id, vault.seal(random_secrets.token_bytes(SECRET_BYTES), tenant=tenant, row=_row(secret_id))


def _opened(vault: Vault, tenant: str, rows: list[Record]) -> list[SigningSecret]:
    return [
        SigningSecret(
            secret_id=row["secret_id"],
            key=vault.open(row["sealed"], tenant=tenant, row=_row(row["secret_id"])),
            created_at=row["created_at"],
            expires_at=row["expires_at"],
        )
        for row in rows
    ]


def _row(secret_id: str) -> str:
    return f"webhook_secret:{secret_id}"
