"""Push notification configs: which webhooks hear of a task's events.

Written by the operations of that name and, inline, with a message (``transitions``); read by every claim of a delivery.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString, Self
from uuid import UUID

from app.auth.vault import Vault
from app.ledger.pool import Database, Record, SqlRefusalError
from app.ledger.rows import TaskMissing
from app.protocol.strict_json import dumps, loads_trusted

MAX_PER_TASK = 32
"""As ``push_config_put`` has it."""

CREATE: LiteralString = "SELECT push_config_create($1, $2, $3, $4, $5, $6, $7, $8, $9)"
GET: LiteralString = """
SELECT config_id, url, scheme, destination, from_seq, created_at, created_by FROM push_configs
 WHERE tenant_id = $1 AND task_id = $2 AND config_id = $3"""
TARGET: LiteralString = """
SELECT config_id, url, scheme, secret, destination FROM push_configs
 WHERE tenant_id = $1 AND task_id = $2 AND config_id = $3"""
LIST: LiteralString = """
SELECT config_id, url, scheme, destination, from_seq, created_at, created_by FROM push_configs
 WHERE tenant_id = $1 AND task_id = $2 AND config_id > $3 ORDER BY config_id LIMIT $4"""
DELETE: LiteralString = "SELECT push_config_delete($1, $2, $3)"


@dataclass(frozen=True, slots=True)
class PushSecret:
    """What a config has that is never shown again: A2A's token and the credentials of its authentication.

    It is sealed for the config's id **and URL**: whoever can write the database cannot have it sent elsewhere.
    """

    token: str = ""
    credentials: str = ""

    def seal(self, vault: Vault, *, tenant: str, config_id: str, url: str) -> bytes | None:
        """None when there is nothing to keep."""
        if not self.token and not self.credentials:
            return None
        return vault.seal(dumps([self.token, self.credentials]).encode(), tenant=tenant, row=_row(config_id, url))

    @classmethod
    def open(cls, vault: Vault, sealed: bytes | None, *, tenant: str, config_id: str, url: str) -> Self:
        """Raises VaultError when the key is gone or the row was tampered with."""
        if sealed is None:
            return cls()
        return cls(*loads_trusted(vault.open(sealed, tenant=tenant, row=_row(config_id, url))))


def _row(config_id: str, url: str) -> str:
    return f"push_config:{config_id}:{url}"


@dataclass(frozen=True, slots=True)
class NewPushConfig:
    """``secret`` is a sealed PushSecret, ``scheme`` that of A2A's authentication; ``destination`` is scheme://host:port,
    by which deliveries are shared out among receivers."""

    config_id: str
    url: str
    scheme: str | None
    secret: bytes | None
    destination: str


@dataclass(frozen=True, slots=True)
class PushConfig:
    """A stored config without its secret. It hears of every event from ``from_seq`` on."""

    config_id: str
    url: str
    scheme: str | None
    destination: str
    from_seq: int
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class PushConfigSet:
    """The task has this config (committed)."""


@dataclass(frozen=True, slots=True)
class TooManyConfigs:
    """The task has ``MAX_PER_TASK`` configs already; nothing was stored."""


async def create(
    db: Database, *, tenant: str, subject: str, agent_id: str, task_id: UUID, config: NewPushConfig
) -> PushConfigSet | TooManyConfigs | TaskMissing:
    """Give a task of this agent a config, or replace the one with its id: what is pending then goes to the new URL.

    It hears of every event after the task's last one at this moment. Raises Unavailable.
    """
    try:
        await db.fetch(CREATE, tenant, subject, agent_id, task_id, *arguments(config))
    except SqlRefusalError as refusal:
        return TaskMissing() if refusal.code == "WS002" else TooManyConfigs()
    return PushConfigSet()


def arguments(config: NewPushConfig | None) -> tuple[object, ...]:
    """A config as the SQL functions take it, all NULL for none."""
    if config is None:
        return (None,) * 5
    return (config.config_id, config.url, config.scheme, config.secret, config.destination)


async def get(db: Database, tenant: str, task_id: UUID, config_id: str) -> PushConfig | None:
    """One config of a task; None for an unknown one. Raises Unavailable."""
    async with db.tenant(tenant) as connection:
        row = await connection.fetchrow(GET, tenant, task_id, config_id)
    return None if row is None else _config(row)


async def target(db: Database, tenant: str, task_id: UUID, config_id: str) -> NewPushConfig | None:
    """One config as it was given, its secret sealed; None for an unknown one. Raises Unavailable."""
    async with db.tenant(tenant) as connection:
        row = await connection.fetchrow(TARGET, tenant, task_id, config_id)
    if row is None:
        return None
    return NewPushConfig(row["config_id"], row["url"], row["scheme"], row["secret"], row["destination"])


async def list_configs(
    db: Database, tenant: str, task_id: UUID, *, after: str = "", limit: int = 50
) -> list[PushConfig]:
    """A task's configs in the order of their ids, from behind ``after``. Raises Unavailable."""
    async with db.tenant(tenant) as connection:
        rows = await connection.fetch(LIST, tenant, task_id, after, limit)
    return [_config(row) for row in rows]


def _config(row: Record) -> PushConfig:
    return PushConfig(
        config_id=row["config_id"],
        url=row["url"],
        scheme=row["scheme"],
        destination=row["destination"],
        from_seq=row["from_seq"],
        created_at=row["created_at"],
        created_by=row["created_by"],
    )


async def delete(db: Database, tenant: str, task_id: UUID, config_id: str) -> None:
    """The config and what is pending for it are gone; also when there was none. Raises Unavailable."""
    await db.fetch(DELETE, tenant, task_id, config_id)
