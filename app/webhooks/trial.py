"""The test call of a webhook: one signed request now, and what became of it. Called by the native deliveries API.

It is no delivery: it is not stored, not repeated, and says so in a header and in its metadata. Because it makes the
broker call somebody at a client's word, it is bounded.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final
from uuid import UUID, uuid4

from app.errors import NotFound, TooManyRequests
from app.ledger import push_configs, tasks
from app.ledger.pool import Database
from app.ledger.rows import JsonObject, LoadedTask
from app.protocol.events import RESUME_EXTENSION
from app.protocol.strict_json import dumps
from app.webhooks.notify import Notification, Notifier

TEST_HEADER: Final = "X-Waystation-Test"
AT_ONCE: Final = 2
PER_MINUTE: Final = 10


class Trials:
    """One per process. ``clock`` gives monotonic seconds."""

    def __init__(self, db: Database, notifier: Notifier, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._notifier = notifier
        self._limit = TrialLimit(clock)

    async def run(self, tenant: str, task_id: UUID, config_id: str) -> JsonObject:
        """Send the task's present status to one of its webhooks. Raises NotFound, TooManyRequests, Unavailable.

        ``{"delivered", "status", "error", "durationMs", "lastSeq"}``: of the answer its status only.
        """
        config = await push_configs.target(self._db, tenant, task_id, config_id)
        loaded = None if config is None else await tasks.load(self._db, tenant, task_id)
        if config is None or loaded is None:
            raise NotFound
        with self._limit.taken(tenant):
            start = time.monotonic()
            outcome = await self._notifier.post(
                Notification(
                    webhook_id=f"test:{uuid4()}",
                    tenant=tenant,
                    config_id=config_id,
                    url=config.url,
                    scheme=config.scheme,
                    secret=config.secret,
                    body=_body(loaded).encode(),
                    headers={TEST_HEADER: "true"},
                )
            )
            duration = time.monotonic() - start
        return {
            "delivered": outcome.delivered,
            "status": outcome.status,
            "error": outcome.error,
            "durationMs": round(duration * 1000),
            "lastSeq": loaded.head.last_seq,
        }


class TrialLimit:
    """At most AT_ONCE of a tenant's at a time, and PER_MINUTE begun within any minute (per replica)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._under_way: Counter[str] = Counter()
        self._begun: dict[str, deque[float]] = {}

    @contextmanager
    def taken(self, tenant: str) -> Generator[None]:
        """Count one for the length of the block. Raises TooManyRequests."""
        now = self._clock()
        for known, times in list(self._begun.items()):
            while times and times[0] <= now - 60:
                times.popleft()
            if not times:
                del self._begun[known]
        begun = self._begun.setdefault(tenant, deque())
        if self._under_way[tenant] >= AT_ONCE:
            raise TooManyRequests("Another test call is under way", retry_after=1)
        if len(begun) >= PER_MINUTE:
            raise TooManyRequests("Too many test calls", retry_after=begun[0] + 60 - now)
        begun.append(now)
        self._under_way[tenant] += 1
        try:
            yield
        finally:
            self._under_way[tenant] -= 1
            if not self._under_way[tenant]:
                del self._under_way[tenant]


def _body(loaded: LoadedTask) -> str:
    """The present status as a StreamResponse, marked as a test."""
    task = loaded.task
    update: JsonObject = {
        "taskId": task["id"],
        "contextId": task["contextId"],
        "status": task["status"],
        "metadata": {RESUME_EXTENSION: {"test": True}},
    }
    return dumps({"statusUpdate": update})
