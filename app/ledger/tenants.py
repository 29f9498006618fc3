"""Which tenants there are: a content-free table that loops over all tenants enumerate."""

from collections.abc import AsyncGenerator
from typing import LiteralString

from app.ledger.pool import Database

PER_PAGE = 100

PAGE: LiteralString = "SELECT tenant_id FROM tenants WHERE tenant_id > $1 ORDER BY tenant_id LIMIT $2"


async def pages(db: Database) -> AsyncGenerator[list[str]]:
    """All tenants that have ever had a task, in pages that are never empty. Raises Unavailable."""
    after = ""
    while rows := await db.fetch(PAGE, after, PER_PAGE):
        page = [str(row["tenant_id"]) for row in rows]
        yield page
        after = page[-1]
