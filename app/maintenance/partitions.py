"""Makes the event log's partitions ahead of time, on the owner's own connection (ledger.md, Maintenance)."""

import logging

from app.errors import Unavailable
from app.ledger.partitions import ensure_partitions
from app.loops import Loop, LoopConfig

log = logging.getLogger("waystation.partitions")


class Partitions(Loop):
    """``dsn`` logs in as the tables' owner."""

    def __init__(self, dsn: str, interval: float = 3600.0) -> None:
        super().__init__("partitions", LoopConfig(interval, max_backoff=300.0))
        self._dsn = dsn

    async def run_once(self) -> bool:
        try:
            made = await ensure_partitions(self._dsn)
        except OSError as error:
            raise Unavailable from error
        if made:
            log.info("made %d partitions of the event log", made)
        return False
