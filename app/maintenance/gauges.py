"""The gauges that are read from the ledger: read at a scrape, cached, whoever scrapes how often."""

import asyncio
import time

from app import metrics
from app.errors import Unavailable
from app.ledger import deliveries, leases
from app.ledger.pool import Database
from app.ledger.rows import QueueFigures

MAX_AGE_SECONDS = 5.0
MAX_AGENTS = 100
"""Series are bounded: the agents with the most work have their own, all others share one."""
OTHER_AGENTS = "_other"


class QueueGauges:
    """The agents' queues and the outbox. One per process. Called by ``/metrics``."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the queues' figures unless they are fresh. While PostgreSQL is away the last ones stay."""
        async with self._lock:
            if time.monotonic() - self._read_at < MAX_AGE_SECONDS:
                return
            try:
                figures = await leases.queue_figures(self._db)
                due, oldest = await deliveries.figures(self._db)
            except Unavailable:
                return
            self._read_at = time.monotonic()
            metrics.set_queue_figures(bounded(figures))
            metrics.DELIVERIES_DUE.set(due)
            metrics.DELIVERIES_OLDEST.set(oldest)


def bounded(figures: list[QueueFigures]) -> list[tuple[str, int, int, float, int]]:
    """(agent, depth, delayed, oldest age in seconds, leases held), the busiest first, the rest summed up."""
    ranked = sorted(figures, key=lambda row: (-(row.depth + row.running), row.agent_id))
    rows = [(row.agent_id, row.depth, row.delayed, row.oldest_age_seconds, row.running) for row in ranked[:MAX_AGENTS]]
    if rest := ranked[MAX_AGENTS:]:
        rows.append(
            (
                OTHER_AGENTS,
                sum(row.depth for row in rest),
                sum(row.delayed for row in rest),
                max(row.oldest_age_seconds for row in rest),
                sum(row.running for row in rest),
            )
        )
    return rows
