"""Claims leases of one agent while there are free places, and works on them. One per agent of a worker."""

import asyncio
import logging
import time
from http import HTTPStatus
from uuid import uuid4

from waystation_worker.agent import Agent
from waystation_worker.backoff import full_jitter
from waystation_worker.broker import Broker
from waystation_worker.errors import BrokerRefused, LeaseLost
from waystation_worker.heartbeat import Heartbeat
from waystation_worker.held import HeldLease
from waystation_worker.lease import Lease
from waystation_worker.turn import work_turn

logger = logging.getLogger(__name__)

WAIT_SECONDS = 20.0
MOST_PER_CLAIM = 100
GIVE_BACK_SECONDS = 3.0


class Claims:
    """The claim loop of one agent, and the turns that came of it: ``working`` maps each task to its lease."""

    def __init__(
        self, agent: Agent, broker: Broker, heartbeat: Heartbeat, *, worker_id: str, seconds: float | None
    ) -> None:
        self.working: dict[asyncio.Task[None], HeldLease] = {}
        self._agent = agent
        self._broker = broker
        self._heartbeat = heartbeat
        self._worker_id = worker_id
        self._seconds = seconds
        self._freed = asyncio.Event()

    async def claim_forever(self) -> None:
        """Until it is canceled (it then gives back what a broken-off claim may have leased), or the broker refuses.

        Raises BrokerRefused: the token is not accepted, or the agent is not this worker's.
        """
        in_vain = 0
        while True:
            free = await self._free_places()
            claim_id = uuid4().hex
            began = time.monotonic()
            try:
                leases = await self._claim(claim_id, free, WAIT_SECONDS)
            except asyncio.CancelledError:
                await self._give_back(claim_id, free)
                raise
            except BrokerRefused as refused:
                if refused.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                logger.error("the broker fails: %s", refused)
                leases = []
            for lease in leases:
                self._start(lease)
            if leases or time.monotonic() - began > WAIT_SECONDS / 2:
                in_vain = 0
            else:  # a broker that is about to stop answers at once, with nothing
                in_vain += 1
                await asyncio.sleep(full_jitter(in_vain))

    async def _free_places(self) -> int:
        while (free := self._agent.concurrency - len(self.working)) <= 0:
            self._freed.clear()
            await self._freed.wait()
        return min(free, MOST_PER_CLAIM)

    async def _claim(self, claim_id: str, limit: int, wait: float) -> list[Lease]:
        return await self._broker.claim(
            self._agent.name,
            worker_id=self._worker_id,
            claim_id=claim_id,
            limit=limit,
            wait=wait,
            seconds=self._seconds,
            full=self._agent.full,
        )

    async def _give_back(self, claim_id: str, limit: int) -> None:
        """The claim's answer may have crossed with its end: ask again by the same claimId, and release."""
        try:
            async with asyncio.timeout(GIVE_BACK_SECONDS):
                for lease in await self._claim(claim_id, limit, 0):
                    if lease.id not in self._heartbeat:
                        await self._broker.release(lease.id)
        except (TimeoutError, BrokerRefused, LeaseLost) as error:
            logger.debug("nothing given back: %r", error)

    def _start(self, lease: Lease) -> None:
        if lease.id in self._heartbeat:  # a claim that was answered twice
            return
        held = HeldLease(lease, self._broker, observe=self._agent.observe)
        self._heartbeat.keep(held)
        work = asyncio.create_task(work_turn(self._agent, held, self._broker), name=f"turn of task {lease.task_id}")
        self.working[work] = held
        work.add_done_callback(self._done)

    def _done(self, work: asyncio.Task[None]) -> None:
        self._heartbeat.drop(self.working.pop(work))
        self._freed.set()
        if not work.cancelled() and (error := work.exception()) is not None:
            logger.error("a turn broke the worker's own code", exc_info=error)
