"""Forgets push notification deliveries that ended long ago: delivered ones after a week, dead ones after a month."""

from app.ledger import deliveries, tenants
from app.ledger.pool import Database
from app.loops import Loop, LoopConfig

DELIVERED_SECONDS = 7 * 86400.0
DEAD_SECONDS = 30 * 86400.0
PAGE = 500


class Outbox(Loop):
    """``delivered_seconds`` and ``dead_seconds``: how long a delivery is kept after its end."""

    def __init__(
        self,
        db: Database,
        delivered_seconds: float = DELIVERED_SECONDS,
        dead_seconds: float = DEAD_SECONDS,
        interval: float = 3600.0,
    ) -> None:
        super().__init__("outbox", LoopConfig(interval, max_backoff=60.0))
        self._db = db
        self._delivered_seconds = delivered_seconds
        self._dead_seconds = dead_seconds

    async def run_once(self) -> bool:
        more = False
        async for page in tenants.pages(self._db):
            for tenant in page:
                gone = await deliveries.purge(
                    self._db,
                    tenant,
                    delivered_seconds=self._delivered_seconds,
                    dead_seconds=self._dead_seconds,
                    limit=PAGE,
                )
                more |= gone >= PAGE
        return more
