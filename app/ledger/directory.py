"""The agents as requests look them up: cached for at most a second, and told of changes by wake-ups.

Called by operations and the executor side on every request; the agents' own administration reads ``ledger.agents``.
"""

import time
from contextlib import ExitStack

from app.ledger import agents
from app.ledger.pool import Database
from app.ledger.rows import Agent
from app.ledger.wakeups import AGENTS_KEY, Wakeups

MAX_AGE_SECONDS = 1.0
"""A change to an agent shows on all replicas within this time (native-api.md), also when its hint was lost."""
MAX_ENTRIES = 10_000
MAX_ID_CHARACTERS = 63


class AgentDirectory:
    """One per process. Unknown ids are cached too, so that guessing costs one query per second and id; what is longer
    than any id can be is not even looked up: a card's door asks for whatever stands in a URL."""

    def __init__(self, db: Database, wakeups: Wakeups) -> None:
        self._db = db
        self._entries: dict[str, tuple[float, Agent | None]] = {}
        self._exit = ExitStack()
        self._changed = self._exit.enter_context(wakeups.watch(AGENTS_KEY))

    def close(self) -> None:
        self._exit.close()

    async def get(self, agent_id: str) -> Agent | None:
        """The agent, a tombstone (``deleted``) included; None for an id that never was registered.

        Raises Unavailable while PostgreSQL is away and the answer is not cached.
        """
        if len(agent_id) > MAX_ID_CHARACTERS:
            return None
        self._forget_if_changed()
        entry = self._entries.get(agent_id)
        if entry is not None and time.monotonic() - entry[0] < MAX_AGE_SECONDS:
            return entry[1]
        asked = time.monotonic()
        agent = await agents.get(self._db, agent_id)
        if not self._forget_if_changed():  # what was read may be older than a change that came meanwhile
            if len(self._entries) >= MAX_ENTRIES:
                self._entries.clear()
            self._entries[agent_id] = (asked, agent)
        return agent

    def _forget_if_changed(self) -> bool:
        changed = self._changed.take()
        if changed:
            self._entries.clear()
        return changed
