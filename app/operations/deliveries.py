"""A tenant's push notification deliveries and the secrets that sign them (native-api.md, Operators).

Called by ``transports.native.deliveries``. They are the tenant's own business, whoever has made the configs.
"""

import base64
from typing import Any, Final, assert_never

from app.auth.caller import Caller
from app.errors import Conflict, NotFound
from app.ledger import deliveries, webhook_secrets
from app.ledger.deliveries import DeliveryId, DeliveryMissing, DeliveryState, Redelivered, StillPending
from app.ledger.rows import JsonObject
from app.ledger.webhook_secrets import SigningSecret
from app.operations.answers import parse_task_id
from app.operations.deps import Operations
from app.operations.paging import PageTokens
from app.protocol.models import format_timestamp

WHSEC: Final = "whsec_"
"""How Standard Webhooks marks a secret in base64."""
OVERLAP_SECONDS: Final = 86400.0
"""How long the old secret signs beside the one that replaces it."""


async def list_deliveries(
    ops: Operations, caller: Caller, *, state: str | None, task_id: str | None, page_size: int, page_token: str
) -> JsonObject:
    """A page, of the newest task first and of its configs the latest events first. Raises InvalidArgument for a bad
    token, NotFound for a task id that is none, Unavailable.
    """
    tokens = PageTokens(ops.handles, "deliveries", [caller.tenant, state, task_id])
    last = tokens.after(page_token)
    after = None if last is None else DeliveryId.parse(last)
    parsed = None
    if task_id is not None and (parsed := parse_task_id(task_id)) is None:
        raise NotFound
    found = await deliveries.list_deliveries(
        ops.db, caller.tenant, state=state, task_id=parsed, after=after, limit=page_size + 1
    )
    page = found[:page_size]
    more = len(found) > page_size
    return {
        "deliveries": [_shown(one) for one in page],
        "nextPageToken": tokens.next(str(page[-1].key)) if more else "",
    }


async def redeliver(ops: Operations, caller: Caller, delivery_id: str) -> JsonObject:
    """Have one that was delivered or is dead sent once more; the delivery. Raises NotFound, Conflict, Unavailable."""
    key = DeliveryId.parse(delivery_id)
    if key is None:
        raise NotFound
    outcome = await deliveries.redeliver(ops.db, caller.tenant, key)
    match outcome:
        case Redelivered():
            pass
        case StillPending():
            raise Conflict("The delivery is pending: it is sent without being asked for")
        case DeliveryMissing():
            raise NotFound
        case _:
            assert_never(outcome)
    found = await deliveries.get(ops.db, caller.tenant, key)
    if found is None:  # its config was deleted in between
        raise NotFound
    return _shown(found)


async def read_secrets(ops: Operations, caller: Caller) -> JsonObject:
    """The secrets that sign the tenant's notifications, the newest first. Raises Unavailable."""
    return _secrets(await webhook_secrets.live(ops.db, ops.vault, caller.tenant))


async def rotate_secrets(ops: Operations, caller: Caller) -> JsonObject:
    """Make a new secret; the one before goes on signing for OVERLAP_SECONDS. Raises Unavailable."""
    return _secrets(await webhook_secrets.rotate(ops.db, ops.vault, caller.tenant, overlap_seconds=OVERLAP_SECONDS))


def _secrets(secrets: list[SigningSecret]) -> JsonObject:
    return {
        "secrets": [
            {
                "secretId": secret.secret_id,
                "secret": WHSEC + base64.b64encode(secret.key).decode(),
                "createdAt": format_timestamp(secret.created_at),
                "expiresAt": _time(secret.expires_at),
            }
            for secret in secrets
        ]
    }


def _shown(one: DeliveryState) -> JsonObject:
    return {
        "deliveryId": str(one.key),
        "taskId": str(one.key.task_id),
        "configId": one.key.config_id,
        "seq": one.key.seq,
        "state": one.state,
        "attempts": one.attempts,
        "destination": one.destination,
        "lastStatus": one.last_status,
        "lastError": one.last_error,
        "dueAt": _time(one.due_at),
        "createdAt": format_timestamp(one.created_at),
        "deliveredAt": _time(one.ended_at) if one.state == "delivered" else None,
    }


def _time(value: Any) -> str | None:
    return None if value is None else format_timestamp(value)
