"""Keeps the leases of this worker and brings their news at once: one long poll over all of them.

Nothing here looks at a clock of this machine to judge a lease: only the broker says that one is lost.
"""

import asyncio
import logging

from waystation_worker.aside import end, first_of
from waystation_worker.backoff import full_jitter
from waystation_worker.broker import Broker
from waystation_worker.errors import BrokerRefused, LeaseLost
from waystation_worker.held import HeldLease
from waystation_worker.lease import Beat

logger = logging.getLogger(__name__)

MAX_LEASES = 500
"""The most leases of one heartbeat (native-api.md), and so of one worker."""
LONGEST_WAIT = 20.0
UNKNOWN_LEASE_SECONDS = 9.0
"""Taken for a lease's duration where neither the lease nor the worker's options tell it."""
SHORTEST_SECONDS = 0.3
SETTLE_SECONDS = 0.1
"""A lease that ends sooner costs no heartbeat; a new one joins the poll after this."""
SETTLE_PER_LEASE = 0.01
"""Every poll writes each lease once, so a worker that holds many waits longer before it starts one anew."""


class Heartbeat:
    """The leases held by one worker. ``keep`` and ``drop`` are the claim loop's, ``beat_forever`` the worker's."""

    def __init__(self, broker: Broker, *, seconds: float | None = None) -> None:
        self._broker = broker
        self._seconds = seconds
        self._held: dict[str, HeldLease] = {}
        self._grown = asyncio.Event()

    def __contains__(self, lease_id: str) -> bool:
        return lease_id in self._held

    def keep(self, held: HeldLease) -> None:
        self._held[held.lease.id] = held
        self._grown.set()

    def drop(self, held: HeldLease) -> None:
        self._held.pop(held.lease.id, None)

    async def beat_forever(self) -> None:
        """Until it is canceled. A broker that refuses is told of in the log; the claim loop decides what follows."""
        refusals = 0
        while True:
            if not self._held:
                self._grown.clear()
                await self._grown.wait()
            settle = SETTLE_SECONDS + SETTLE_PER_LEASE * len(self._held)
            await asyncio.sleep(min(settle, self._third()))
            try:
                await self._beat()
                refusals = 0
            except BrokerRefused as refused:
                refusals += 1
                logger.error("the broker refuses the heartbeat: %s", refused)
                await asyncio.sleep(full_jitter(refusals))

    async def _beat(self) -> None:
        """One poll: over when there is news, its time is over, or a new lease must join."""
        leases = [held for held in self._held.values() if not held.over]
        if not leases:
            return
        self._grown.clear()
        lease_ids = [held.lease.id for held in leases]
        poll = asyncio.create_task(
            self._broker.heartbeat(lease_ids, wait=min(LONGEST_WAIT, self._third()), seconds=self._seconds)
        )
        grown = asyncio.create_task(self._grown.wait())
        try:
            await first_of(poll, grown)
        finally:
            # News that a canceled poll would have brought is the next one's at once: signals stay until they are heard.
            await end(poll, grown)
        if not poll.cancelled():
            for beat in poll.result():
                self._hear(beat)

    def _third(self) -> float:
        """A third of the shortest lease, in seconds."""
        told = (held.lease.seconds or self._seconds or UNKNOWN_LEASE_SECONDS for held in self._held.values())
        return max(SHORTEST_SECONDS, min(told, default=UNKNOWN_LEASE_SECONDS)) / 3

    def _hear(self, beat: Beat) -> None:
        held = self._held.get(beat.lease_id)
        if held is None:
            return
        if not beat.alive:
            held.reported_lost(LeaseLost(beat.reason, beat.state))
        elif beat.signal is not None:
            held.signal(beat.signal)
