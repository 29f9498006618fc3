"""The outbox: one row per push notification config and event, written with the event, drained by ``app.webhooks``.

The first deliveries of a (task, config) go out strictly in the order of their seqs: only the lowest pending one is due,
and when it is delivered or dead the next one becomes due in the same transaction. Called by the webhook sender and by
the native deliveries API; the rows are written by ``app/ledger/sql/55_outbox.sql``.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from app.ledger.pool import Database, Record

CLAIM: LiteralString = "SELECT * FROM deliveries_claim($1, $2, $3, $4, $5, $6, $7, $8)"
FIGURES: LiteralString = "SELECT * FROM deliveries_figures()"
END: LiteralString = "SELECT delivery_end($1, $2, $3, $4, $5, $6, $7, $8) AS ours"
GIVE_UP: LiteralString = "SELECT deliveries_give_up($1, $2, $3, $4, $5) AS dead"
RETRY: LiteralString = "SELECT delivery_retry($1, $2, $3, $4, $5, $6, $7, $8) AS ours"
REDELIVER: LiteralString = "SELECT delivery_redeliver($1, $2, $3, $4) AS outcome"
GET: LiteralString = """
SELECT task_id, config_id, seq, destination, state, attempts, due_at, last_status, last_error, created_at, ended_at
  FROM deliveries WHERE tenant_id = $1 AND task_id = $2 AND config_id = $3 AND seq = $4"""
LIST: LiteralString = """
SELECT task_id, config_id, seq, destination, state, attempts, due_at, last_status, last_error, created_at, ended_at
  FROM deliveries
 WHERE tenant_id = $1 AND ($2::text IS NULL OR state = $2) AND ($3::uuid IS NULL OR task_id = $3)
   AND ($4::uuid IS NULL OR (task_id, config_id, seq) < ($4, $5, $6))
 ORDER BY task_id DESC, config_id DESC, seq DESC LIMIT $7"""
PURGE: LiteralString = "SELECT deliveries_purge($1, $2, $3, $4) AS gone"


Receiver = tuple[str, str]
"""A tenant and a destination. The destination alone may be a host that many tenants call."""


@dataclass(frozen=True, slots=True)
class DeliveryId:
    """A delivery of its tenant's. As text it is the ``webhook-id``: the same on every attempt."""

    task_id: UUID
    seq: int
    config_id: str

    def __str__(self) -> str:
        return f"{self.task_id}:{self.seq}:{self.config_id}"

    @staticmethod
    def parse(text: str) -> "DeliveryId | None":
        """None for what no delivery is called."""
        match text.split(":", 2):
            case [task_id, seq, config_id] if seq.isascii() and seq.isdecimal() and len(seq) < 19:
                try:
                    found = DeliveryId(UUID(task_id), int(seq), config_id)
                except ValueError:
                    return None
                return found if str(found) == text else None
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One claimed delivery: everything that its request is made of.

    ``attempt`` counts from 1, anew after a redelivery; ``fence`` grows with every claim, so that an answer that comes
    after its hold ran out changes nothing. ``secret`` is ``push_configs.PushSecret`` sealed, None without one.
    ``body`` is the event's StreamResponse as JSON text in UTF-8, None when the event is not kept any more;
    ``age_seconds`` is how old the event was at the claim.
    """

    tenant: str
    key: DeliveryId
    fence: int
    attempt: int
    url: str
    scheme: str | None
    secret: bytes | None
    destination: str
    body: bytes | None
    age_seconds: float

    @property
    def id(self) -> str:
        """``task:seq:config``, stable over retries and redeliveries."""
        return str(self.key)

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return len(self.body or b"")

    @property
    def receiver(self) -> Receiver:
        """Whose bounds it counts against."""
        return self.tenant, self.destination

    @property
    def task_id(self) -> UUID:
        return self.key.task_id

    @property
    def config_id(self) -> str:
        return self.key.config_id

    @property
    def seq(self) -> int:
        return self.key.seq


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """A row of the list. ``state``: pending, delivered or dead; ``due_at`` is None behind an earlier one of its line
    and when nothing will be sent any more; while a request is under way it is when another sender may take over. What
    waits has the ``destination`` that its config had when it was written."""

    key: DeliveryId
    destination: str
    state: str
    attempts: int
    due_at: datetime | None
    last_status: int | None
    last_error: str | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Redelivered:
    """Pending again and due at once, beside its line: it neither waits for the others nor holds them up."""


@dataclass(frozen=True, slots=True)
class StillPending:
    """It has not ended yet, so there is nothing to repeat."""


@dataclass(frozen=True, slots=True)
class DeliveryMissing:
    """No such delivery of this tenant's, or its config was deleted: nobody to deliver to."""


async def claim(
    db: Database,
    *,
    limit: int,
    limit_bytes: int,
    per_receiver: int,
    busy: Mapping[Receiver, int],
    avoid: Collection[Receiver],
    full: Collection[str] = (),
    hold_seconds: float,
) -> list[Delivery]:
    """Take up to ``limit`` due deliveries of all tenants; nobody else gets them for ``hold_seconds``.

    No more follow when their bodies have ``limit_bytes`` together: a body of any size is taken, as the last one.
    Receiver by receiver, the one that has waited longest first, at most ``per_receiver`` minus its ``busy`` count of
    each; those in ``avoid`` and the tenants in ``full`` are left alone. So what is due for one receiver, be it ever so
    much, neither delays nor is read for the others. Senders never wait for each other. Raises Unavailable.
    """
    rows = await db.fetch(
        CLAIM,
        limit,
        limit_bytes,
        per_receiver,
        [" ".join(receiver) for receiver in busy],
        list(busy.values()),
        [" ".join(receiver) for receiver in avoid],
        list(full),
        hold_seconds,
    )
    return [_delivery(row) for row in rows]


async def figures(db: Database) -> tuple[int, float]:
    """How many of all tenants' are due now, and for how many seconds the oldest has been. Raises Unavailable."""
    row = await db.call(FIGURES)
    return row["due"], row["oldest"]


def _delivery(row: Record) -> Delivery:
    return Delivery(
        tenant=row["tenant_id"],
        key=DeliveryId(row["task_id"], row["seq"], row["config_id"]),
        fence=row["fence"],
        attempt=row["attempt"],
        url=row["url"],
        scheme=row["scheme"],
        secret=row["secret"],
        destination=row["destination"],
        body=row["body"],
        age_seconds=row["age"],
    )


async def delivered(db: Database, delivery: Delivery, status: int) -> bool:
    """The receiver took it; the next one of its line is due. False: it was not ours any more. Raises Unavailable."""
    return await _end(db, delivery, "delivered", status, None)


async def failed(
    db: Database, delivery: Delivery, *, status: int | None, error: str, retry_seconds: float | None
) -> bool:
    """It did not arrive: due again in ``retry_seconds``, or dead when that is None, and then the next one is due.

    ``error`` is shown to the tenant. False: it was not ours any more. Raises Unavailable.
    """
    if retry_seconds is None:
        return await _end(db, delivery, "dead", status, error)
    key = delivery.key
    args = (delivery.tenant, key.task_id, key.config_id, key.seq, delivery.fence)
    return (await db.call(RETRY, *args, status, error, retry_seconds))["ours"]


async def give_up(db: Database, receiver: Receiver, *, older_seconds: float, error: str, limit: int = 100) -> int:
    """For a receiver that does not answer: what is due to it and older than this is dead, and what waits behind that.

    Nothing that is being sent. Up to ``limit`` lines and so many of each; how many are dead, 0 when none is left.
    ``error`` is shown to the tenant. Raises Unavailable.
    """
    return (await db.call(GIVE_UP, *receiver, older_seconds, error, limit))["dead"]


async def _end(db: Database, delivery: Delivery, state: str, status: int | None, error: str | None) -> bool:
    key = delivery.key
    args = (delivery.tenant, key.task_id, key.config_id, key.seq, delivery.fence)
    return (await db.call(END, *args, state, status, error))["ours"]


async def list_deliveries(
    db: Database,
    tenant: str,
    *,
    state: str | None = None,
    task_id: UUID | None = None,
    after: DeliveryId | None = None,
    limit: int = 50,
) -> list[DeliveryState]:
    """A tenant's deliveries, those of the newest task first and of a config the latest first; ``after`` is the last one
    of the page before. Raises Unavailable."""
    place = (None, None, None) if after is None else (after.task_id, after.config_id, after.seq)
    async with db.tenant(tenant) as connection:
        rows = await connection.fetch(LIST, tenant, state, task_id, *place, limit)
    return [_state(row) for row in rows]


async def get(db: Database, tenant: str, key: DeliveryId) -> DeliveryState | None:
    """One delivery of a tenant's; None for an unknown one. Raises Unavailable."""
    async with db.tenant(tenant) as connection:
        row = await connection.fetchrow(GET, tenant, key.task_id, key.config_id, key.seq)
    return None if row is None else _state(row)


def _state(row: Record) -> DeliveryState:
    return DeliveryState(
        key=DeliveryId(row["task_id"], row["seq"], row["config_id"]),
        destination=row["destination"],
        state=row["state"],
        attempts=row["attempts"],
        due_at=row["due_at"],
        last_status=row["last_status"],
        last_error=row["last_error"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
    )


async def redeliver(db: Database, tenant: str, key: DeliveryId) -> Redelivered | StillPending | DeliveryMissing:
    """Send one that was delivered or is dead once more; attempts count anew, the event's age does not. Raises
    Unavailable."""
    row = await db.call(REDELIVER, tenant, key.task_id, key.config_id, key.seq)
    match row["outcome"]:
        case "applied":
            return Redelivered()
        case "pending":
            return StillPending()
        case _:
            return DeliveryMissing()


async def purge(db: Database, tenant: str, *, state: str, older_seconds: float, limit: int) -> int:
    """Forget up to ``limit`` of a tenant's that ended as ``state`` (delivered, dead) longer ago than this; how many."""
    return (await db.call(PURGE, tenant, state, older_seconds, limit))["gone"]
