"""The agents whose cards somebody may see, a page at a time. Called by ``operations.catalogue``."""

from dataclasses import dataclass
from typing import LiteralString

from app.ledger.agents import to_agent
from app.ledger.pool import Database
from app.ledger.rows import Agent, JsonObject
from app.protocol import strict_json

SCANNED_AGENTS = 1000
"""So many visible agents are looked through for a filter, then the page ends, short or empty as it may be."""
PAGE_BYTES = 2 * 1024 * 1024
"""Of settings, cards included; one agent is always on a page."""
EVERYTHING: JsonObject = {}

# The public ones apart, so that without a token no other agent is read: they have an index of their own.
VISIBLE: LiteralString = """
WITH scanned AS MATERIALIZED (
  (SELECT agent_id, tenant_id, config, shared_with, revision, updated_at FROM agents
    WHERE agent_id > $2 AND deleted_at IS NULL AND card_public
    ORDER BY agent_id LIMIT $4)
   UNION ALL
  (SELECT agent_id, tenant_id, config, shared_with, revision, updated_at FROM agents
    WHERE agent_id > $2 AND deleted_at IS NULL AND NOT card_public
      AND $1::text IS NOT NULL AND (tenant_id = $1 OR shared_with && ARRAY['*', $1])
    ORDER BY agent_id LIMIT $4)
   ORDER BY agent_id LIMIT $4
), matching AS (
  SELECT *, row_number() OVER (ORDER BY agent_id) AS place, sum(octet_length(config)) OVER (ORDER BY agent_id) AS bytes
    FROM scanned WHERE config::jsonb @> $3::jsonb
)
SELECT ends.scanned, ends.last, ends.matching, agent_id, tenant_id, config, shared_with, revision, updated_at,
       false AS deleted
  FROM (SELECT count(*) AS scanned, max(agent_id) AS last, (SELECT count(*) FROM matching) AS matching
          FROM scanned) ends
  LEFT JOIN matching ON place <= $5 AND (place = 1 OR bytes <= $6)
 ORDER BY agent_id"""


@dataclass(frozen=True, slots=True)
class Page:
    """``after`` is the id that the next page comes after; "" when there is none."""

    agents: list[Agent]
    after: str


async def list_cards(db: Database, tenant: str | None, *, like: JsonObject, after: str, limit: int) -> Page:
    """Agents with public cards and, for a ``tenant``, its own and those shared with it, by id after ``after``.

    Only those whose settings contain ``like`` (as jsonb's ``@>`` has it). A page that is not full need not be the last.
    """
    scan = limit + 1 if like == EVERYTHING else SCANNED_AGENTS
    rows = await db.fetch(VISIBLE, tenant, after, strict_json.dumps(like), scan, limit, PAGE_BYTES)
    found = [to_agent(row) for row in rows if row["agent_id"] is not None]
    if rows[0]["matching"] > len(found):
        return Page(found, found[-1].agent_id)
    return Page(found, str(rows[0]["last"]) if rows[0]["scanned"] == scan else "")
