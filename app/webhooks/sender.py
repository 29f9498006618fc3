"""The webhook sender: takes due deliveries from the outbox and sends them, several at a time. One in every replica.

At least once: a delivery is held while it is sent and recorded when it was answered; what a killed process held is due
again when its hold runs out. The order within a (task, config) is the ledger's: nothing of a line is due before its
first delivery has ended. Made and started by ``app.main``.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, TypeVar

from app import metrics
from app.errors import Unavailable
from app.ledger import deliveries
from app.ledger.deliveries import Delivery, Receiver
from app.ledger.pool import Database
from app.ledger.wakeups import DELIVERIES_KEY, Wakeups
from app.loops import Loop, LoopConfig
from app.webhooks.breaker import Breaker
from app.webhooks.notify import TIMEOUT_SECONDS, Notification, Notifier, Outcome
from app.webhooks.schedule import MAX_AGE_SECONDS, pause_after

log = logging.getLogger("waystation.webhooks")
_random = random.SystemRandom()

AT_ONCE: Final = 128
PER_RECEIVER: Final = 8
"""A receiver that takes its time holds so many of the places, and leaves the others to all others."""
PER_TENANT: Final = 32
"""A tenant that holds so many gets no more: with any number of slow receivers it never holds half of the places."""
PAGE: Final = 32
BYTES: Final = 32 * 1024 * 1024
"""With so many bytes of bodies under way nothing more begins, save the one that reaches it, however large."""
TENANT_BYTES: Final = BYTES // 4
PAGE_BYTES: Final = BYTES // 8
"""With pages of this size a tenant that is not yet full comes to half of the bytes, and the body that was the last."""
HOLD_SECONDS: Final = TIMEOUT_SECONDS + 5
"""Long enough to send, and to record the outcome although PostgreSQL is away for a moment."""
RECORD_PAUSE_SECONDS: Final = 0.5
STOP_SECONDS: Final = 3.0
"""How long a stopping process waits for what is under way; the rest is sent again by another when its hold is over."""

Pause = Callable[..., float | None]
_Key = TypeVar("_Key")


class Sender(Loop):
    """``poll_seconds``: looked for work after so long at the latest, whatever was heard. ``pause`` is the schedule."""

    def __init__(
        self,
        db: Database,
        wakeups: Wakeups,
        notifier: Notifier,
        *,
        poll_seconds: float,
        hold_seconds: float = HOLD_SECONDS,
        pause: Pause = pause_after,
    ) -> None:
        super().__init__("webhooks", LoopConfig(poll_seconds))
        self._db = db
        self._notifier = notifier
        self._hold_seconds = hold_seconds
        self._pause_after = pause
        self._breaker = Breaker(time.monotonic)
        self._in_flight: Counter[Receiver] = Counter()
        self._tenants: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._sending: set[asyncio.Task[None]] = set()
        self._draining = False
        self._exit = ExitStack()
        self._signal = self._exit.enter_context(wakeups.watch(DELIVERIES_KEY))

    async def run_once(self) -> bool:
        """Begin to send what is due, as far as there is room; each end of a sending makes room and wakes the loop."""
        limit = min(PAGE, AT_ONCE - len(self._sending))
        limit_bytes = min(PAGE_BYTES, BYTES - self._bytes.total())
        if self._draining or limit <= 0 or limit_bytes <= 0:
            return False
        avoid = self._breaker.paused(self._in_flight)
        # room for one: it is the probe
        probed = dict.fromkeys(self._breaker.probed() - avoid, PER_RECEIVER - 1)
        claimed = await deliveries.claim(
            self._db,
            limit=limit,
            limit_bytes=limit_bytes,
            per_receiver=PER_RECEIVER,
            busy={**self._in_flight, **probed},
            avoid=avoid,
            full=self._full(),
            hold_seconds=self._hold_seconds,
        )
        for delivery in claimed:
            self._begin(delivery)
        return len(claimed) == limit or sum(one.size for one in claimed) >= limit_bytes

    def _full(self) -> list[str]:
        return [
            tenant
            for tenant, count in self._tenants.items()
            if count >= PER_TENANT or self._bytes[tenant] >= TENANT_BYTES
        ]

    def drain(self) -> None:
        """Take nothing more; what is under way goes on. Idempotent."""
        self._draining = True

    async def stop(self) -> None:
        """Drain, and wait a moment for what is under way."""
        self.drain()
        await super().stop()
        self._exit.close()
        if self._sending:
            _, late = await asyncio.wait(self._sending, timeout=STOP_SECONDS)
            for sending in late:
                sending.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until nothing is under way: the signal for tests that call ``run_once``."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def _rest(self, seconds: float) -> None:
        if seconds:
            await self._signal.wait(seconds)
        else:
            await super()._rest(seconds)

    def _begin(self, delivery: Delivery) -> None:
        self._in_flight[delivery.receiver] += 1
        self._tenants[delivery.tenant] += 1
        self._bytes[delivery.tenant] += delivery.size
        sending = asyncio.create_task(self._send(delivery), name=f"webhook:{delivery.id}")
        self._sending.add(sending)
        sending.add_done_callback(lambda _: self._ended(sending, delivery))

    def _ended(self, sending: asyncio.Task[None], delivery: Delivery) -> None:
        self._sending.discard(sending)
        _count_down(self._in_flight, delivery.receiver)
        _count_down(self._tenants, delivery.tenant)
        _count_down(self._bytes, delivery.tenant, delivery.size)
        self._signal.set()

    async def _send(self, delivery: Delivery) -> None:
        start = time.monotonic()
        try:
            outcome = await self._post(delivery)
            if outcome.silent:
                self._breaker.failed(delivery.receiver)
            elif outcome.status is not None:
                self._breaker.answered(delivery.receiver)
            age = delivery.age_seconds + time.monotonic() - start
            await self._record(delivery, outcome, age, held_until=start + self._hold_seconds)
            if outcome.silent and delivery.receiver in self._breaker.probed():
                await self._give_up(delivery.receiver)
        except Unavailable:
            log.warning("PostgreSQL is away: a notification will be sent again")
        except Exception:
            log.exception("what became of a notification could not be recorded")

    async def _give_up(self, receiver: Receiver) -> None:
        """One request at a time would take longer than a day to find each event older than a day."""
        error = "The receiver does not answer, and the event is more than a day old"
        while dead := await deliveries.give_up(self._db, receiver, older_seconds=MAX_AGE_SECONDS, error=error):
            metrics.DELIVERIES.labels("dead").inc(dead)

    async def _post(self, delivery: Delivery) -> Outcome:
        """A fault of ours is a failed attempt as well: without an end it would hold up its line for ever."""
        if delivery.body is None:
            return Outcome(None, "The event is not kept any more", final=True)
        try:
            return await self._notifier.post(
                Notification(
                    webhook_id=delivery.id,
                    tenant=delivery.tenant,
                    config_id=delivery.config_id,
                    url=delivery.url,
                    scheme=delivery.scheme,
                    secret=delivery.secret,
                    body=delivery.body,
                )
            )
        except Unavailable:
            raise
        except Exception:
            log.exception("a notification could not be sent")
            return Outcome(None, "The notification could not be sent")

    async def _record(self, delivery: Delivery, outcome: Outcome, age: float, *, held_until: float) -> None:
        """Write down what came of it, tried again while the delivery is ours: else it would be sent twice."""
        while True:
            try:
                await self._write(delivery, outcome, age)
                return
            except Unavailable:
                if time.monotonic() + RECORD_PAUSE_SECONDS > held_until:
                    raise
            await asyncio.sleep(RECORD_PAUSE_SECONDS * _random.uniform(0.5, 1))

    async def _write(self, delivery: Delivery, outcome: Outcome, age: float) -> None:
        if outcome.error is None:
            assert outcome.status is not None
            if await deliveries.delivered(self._db, delivery, outcome.status):
                metrics.DELIVERIES.labels("delivered").inc()
                metrics.DELIVERY_SECONDS.observe(age)
            return
        pause = None
        if not outcome.final:
            pause = self._pause_after(delivery.attempt, age_seconds=age, retry_after=outcome.retry_after)
        if await deliveries.failed(self._db, delivery, status=outcome.status, error=outcome.error, retry_seconds=pause):
            metrics.DELIVERIES.labels("dead" if pause is None else "retried").inc()


def _count_down(counts: Counter[_Key], key: _Key, by: int = 1) -> None:
    counts[key] -= by
    if not counts[key]:
        del counts[key]
