"""Forgets push notification deliveries that ended long ago: delivered ones after a week, dead ones after a month."""

import itertools
from collections.abc import Mapping

from app.ledger import deliveries, tenants
from app.ledger.pool import Database
from app.loops import Loop, LoopConfig

KEPT_SECONDS = {"delivered": 7 * 86400.0, "dead": 30 * 86400.0}
PAGE = 500


class Outbox(Loop):
    """``kept_seconds``: how long a delivery is kept after its end, by how it ended."""

    def __init__(
        self, db: Database, kept_seconds: Mapping[str, float] = KEPT_SECONDS, interval: float = 3600.0
    ) -> None:
        super().__init__("outbox", LoopConfig(interval, max_backoff=60.0))
        self._db = db
        self._kept_seconds = kept_seconds

    async def run_once(self) -> bool:
        async for page in tenants.pages(self._db):
            for tenant, (state, seconds) in itertools.product(page, self._kept_seconds.items()):
                while await deliveries.purge(self._db, tenant, state=state, older_seconds=seconds, limit=PAGE) == PAGE:
                    pass  # here and now: another round would ask all the other tenants again
        return False
