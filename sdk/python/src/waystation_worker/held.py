"""A lease while this worker holds it: where the heartbeat's news, the handler's writes and the drain meet.

Made by the claim loop, worked on by ``turn``, told news by the heartbeat, seen by handlers through the context.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Literal, TypeAlias

from waystation_worker.broker import Broker
from waystation_worker.content import Json
from waystation_worker.errors import LeaseLost
from waystation_worker.lease import Lease, Receipt, Signal
from waystation_worker.outbox import Outbox

logger = logging.getLogger(__name__)

LINGER_SECONDS = 10.0
"""How long a handler may go on by itself (cleaning up, say) after its turn has ended, before it is canceled."""

StopReason: TypeAlias = Signal | Literal["lost", "drain"]
"""Why a handler should stop: the broker's signal, a lease that is lost, or this worker's own shutdown."""


class HeldLease:
    """One lease and the one coroutine that works on it. ``stopped`` is set as soon as there is a reason to stop.

    ``observe``: signals only set ``stopped``; a lost lease and a drain cancel the coroutine all the same.
    """

    def __init__(self, lease: Lease, broker: Broker, *, observe: bool = False) -> None:
        self.lease = lease
        self.stop: StopReason | None = None
        self.stopped = asyncio.Event()
        self.ended = False
        self.receipt: Receipt | None = None
        self.outbox = Outbox(
            lease.fence, lambda events: broker.append(lease.id, events), heard=self._heard, lost=self.lose
        )
        self._observe = observe
        self._work: asyncio.Task[Any] | None = None
        self._linger: asyncio.TimerHandle | None = None

    @property
    def over(self) -> bool:
        """Nothing can be written any more: the turn was ended, or the lease is lost."""
        return self.ended or self.stop == "lost"

    async def work(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs the coroutine, cancelable by news of the lease, until it is over; answers it as a done task."""
        self._work = asyncio.create_task(coroutine, name=f"task {self.lease.task_id}")
        try:
            await asyncio.wait({self._work})
        finally:
            self._work.cancel()
            if self._linger is not None:
                self._linger.cancel()
        return self._work

    async def finish(self, event: Json) -> None:
        """Writes the event that ends the turn. It has happened when this returns."""
        await self.outbox.finish(event)
        self.ended = True
        if self._work is not None and not self._work.done():
            self._linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._work.cancel)

    def signal(self, signal: Signal) -> None:
        """The broker asks for an end. Too late when the end is already on its way: the first commit wins."""
        if self.stop is not None or self.ended or self.outbox.ending:
            return
        logger.info("task %s: %s", self.lease.task_id, signal)
        self._stop(signal, cancel=not self._observe)

    def lose(self, lost: LeaseLost) -> None:
        """The lease has ended without us. Nothing more is sent, and the handler is canceled."""
        if self.over:
            return
        logger.warning("task %s: the lease is lost, %s", self.lease.task_id, lost)
        self.outbox.close(lost)
        self._stop("lost", cancel=True)

    def reported_lost(self, lost: LeaseLost) -> None:
        """A heartbeat says so. While our own last event is on its way, only its answer tells who ended the lease."""
        if not self.outbox.ending:
            self.lose(lost)

    def drain(self) -> None:
        """The worker ends and cannot wait any longer. A turn that is just ending is left to end."""
        if self.over or self.outbox.ending:
            return
        self._stop("drain", cancel=True)

    def _heard(self, receipt: Receipt) -> None:
        self.receipt = receipt
        if receipt.lease_ended:
            self.ended = True
        elif receipt.signal is not None:
            self.signal(receipt.signal)

    def _stop(self, reason: StopReason, *, cancel: bool) -> None:
        self.stop = reason
        self.stopped.set()
        if cancel and self._work is not None:
            self._work.cancel()
