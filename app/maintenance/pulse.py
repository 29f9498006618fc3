"""The pulse: is PostgreSQL there, for how long already, and does this code fit its schema?

Asked by readiness and by the reaper.
"""

import logging
import time
from collections.abc import Awaitable, Callable

from app.errors import Unavailable
from app.ledger.pool import Database
from app.ledger.wakeups import Wakeups
from app.loops import Loop, LoopConfig

log = logging.getLogger("waystation.pulse")

FRESH_SECONDS = 10.0
"""Readiness believes a round trip that is no older (reliability.md, Shutdown, deploys, pools)."""


class Pulse(Loop):
    """``check_schema`` answers None when the schema fits, else one line with the command that helps."""

    def __init__(
        self, db: Database, wakeups: Wakeups, check_schema: Callable[[], Awaitable[str | None]], interval: float = 2.0
    ) -> None:
        super().__init__("pulse", LoopConfig(interval))
        self._db = db
        self._wakeups = wakeups
        self._check_schema = check_schema
        self._schema_problem: str | None = "the schema has not been checked yet"
        self._beat_at = float("-inf")
        self._back_at = float("-inf")
        self._away = False

    async def run_once(self) -> bool:
        try:
            await self._db.ping()
        except Unavailable:
            if not self._away:
                log.warning("PostgreSQL is away")
            self._away = True
            return False
        if self._schema_problem is not None:
            self._schema_problem = await self._schema()
        self._beat_at = time.monotonic()
        if self._away:
            log.info("PostgreSQL is back")
            self._away, self._back_at = False, self._beat_at
        return False

    async def _schema(self) -> str | None:
        try:
            return await self._check_schema()
        except Exception as error:  # whatever it is, this process cannot say that it fits
            return f"the schema cannot be read ({type(error).__name__})"

    def healthy_seconds(self) -> float:
        """For how long PostgreSQL has been reachable without a break; 0 while it is away, infinite if it never was."""
        if self._away:
            return 0.0
        return time.monotonic() - max(self._back_at, self._wakeups.reconnected_at)

    def problems(self) -> list[str]:
        """Why this process is not ready, as far as the database goes."""
        if time.monotonic() - self._beat_at > FRESH_SECONDS:
            return [f"no answer from PostgreSQL within {FRESH_SECONDS:.0f} s"]
        return [] if self._schema_problem is None else [self._schema_problem]
