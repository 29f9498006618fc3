"""Lanes: the shares of an agent among tenants, and inside a tenant among its fair keys (ledger.md, Fair lanes).

Made by submits and by their agent's owner, kept by claims; only the owner's part is written from here. Called by
``operations.lanes``.
"""

from typing import LiteralString

from app.ledger.pool import Database
from app.ledger.rows import LaneSet, LanesFull

SET: LiteralString = "SELECT lane_set($1, $2, $3, $4, $5, $6) AS outcome"


async def set_share(
    db: Database, *, owner: str, agent_id: str, tenant: str, fair_key: str, weight: float, max_running: int | None
) -> LaneSet | LanesFull | None:
    """Give a lane its share of an agent of ``owner``'s; None when ``owner`` has no such agent.

    ``fair_key`` "" is the tenant's own lane, whose weight and limit hold for all its lanes together. ``weight`` is
    relative (1 where nothing is set), ``max_running`` None is no limit. Raises Unavailable.
    """
    row = await db.call(SET, owner, agent_id, tenant, fair_key, weight, max_running)
    match row["outcome"]:
        case "applied":
            return LaneSet()
        case "full":
            return LanesFull()
        case _:
            return None
