"""The claim loop of one agent in this process: feeds the long-polling workers that wait for the agent's tasks.

Made and fed by ``execution.leasing``. One loop, because claimers that race each other skip each other's lanes and come
back empty (ledger.md, Claim). It lives while somebody waits.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from app import metrics
from app.errors import Unavailable
from app.ledger import leases
from app.ledger.directory import AgentDirectory
from app.ledger.inputs import ClaimLimits
from app.ledger.pool import Database
from app.ledger.rows import Claimed
from app.ledger.wakeups import Wakeups, queue_key, task_key
from app.protocol.states import TaskState

log = logging.getLogger("waystation.leasing")

RETRY_SECONDS: Final = (0.01, 0.03, 0.1, 0.3)
"""After a wake-up an empty claim is tried again so soon: a lane is skipped while any transaction holds it."""
_random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Want:
    """What one worker asks for. ``lease_seconds`` None: the task's own; ``claim_id`` lets a repeat find its leases."""

    worker_id: str
    limit: int
    lease_seconds: float | None = None
    claim_id: str | None = None


class Poller:
    """One waiting request. ``answer`` is set once: with leases, with none, or with Unavailable; or it is cancelled."""

    __slots__ = ("answer", "over", "want")

    def __init__(self, want: Want) -> None:
        self.want = want
        self.answer: asyncio.Future[list[Claimed]] = asyncio.get_running_loop().create_future()
        self.over = False
        """Its time is over: it is answered with none as soon as the queue has been looked at for it."""


class ClaimLoop:
    """``give_back`` receives leases whose poller has gone meanwhile."""

    def __init__(
        self,
        agent_id: str,
        db: Database,
        wakeups: Wakeups,
        directory: AgentDirectory,
        *,
        poll_seconds: float,
        give_back: Callable[[Sequence[Claimed]], None],
    ) -> None:
        self._agent_id = agent_id
        self._db = db
        self._wakeups = wakeups
        self._directory = directory
        self._poll_seconds = poll_seconds
        self._give_back = give_back
        self._waiting: deque[Poller] = deque()
        self._task: asyncio.Task[None] | None = None
        self._draining = False
        self._exit = ExitStack()
        self._signal = self._exit.enter_context(wakeups.watch(queue_key(agent_id)))

    def add(self, poller: Poller, wait_seconds: float) -> None:
        """Serve ``poller`` in its turn, and answer it with none when ``wait_seconds`` are over."""
        self._waiting.append(poller)
        if wait_seconds <= 0:
            poller.over = True
        else:
            timer = asyncio.get_running_loop().call_later(wait_seconds, self._time_over, poller)
            poller.answer.add_done_callback(lambda _: timer.cancel())
        self._signal.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"claims:{self._agent_id}")

    def drain(self) -> None:
        """Answer all who wait with none, for good; what a claim that is under way finds still goes to its poller."""
        self._draining = True
        while self._waiting:
            _answer(self._waiting.popleft(), [])
        self._signal.set()  # nobody is left to wait for

    async def stop(self) -> None:
        """Drain, and wait for the claim that is under way."""
        self.drain()
        if self._task is not None:
            await asyncio.wait((self._task,))
        self._exit.close()

    def _time_over(self, poller: Poller) -> None:
        poller.over = True
        if poller in self._waiting:  # else its claim is under way and answers it
            self._waiting.remove(poller)
            _answer(poller, [])

    async def _run(self) -> None:
        try:
            looks = 0
            while self._waiting:
                self._signal.take()
                if await self._serve():
                    looks = 0
                if self._waiting:
                    looks = 0 if await self._signal.wait(self._pause(looks)) else looks + 1
        except Exception as error:
            if not isinstance(error, Unavailable):
                log.exception("claims of agent %s failed", self._agent_id)
            while self._waiting:
                poller = self._waiting.popleft()
                if not poller.answer.done():
                    poller.answer.set_exception(error)
        finally:
            self._task = None

    def _pause(self, looks: int) -> float:
        if looks < len(RETRY_SECONDS):
            return RETRY_SECONDS[looks]
        return self._poll_seconds * _random.uniform(0.7, 1)

    async def _serve(self) -> bool:
        """Claim for one poller after the other until the queue has no more; whether it had any."""
        served = False
        while self._waiting:
            poller = self._waiting.popleft()
            if poller.answer.done():
                continue
            claimed = await self._claim(poller)
            if not claimed:
                self._nothing_for(poller)
                return served
            served = True
            if poller.answer.done():
                self._give_back(claimed)
            else:
                poller.answer.set_result(claimed)
            if not self._waiting and len(claimed) == poller.want.limit:
                self._wakeups.bump(queue_key(self._agent_id))  # there may be more, for another replica's pollers
        return served

    def _nothing_for(self, poller: Poller) -> None:
        """The queue is empty for all who wait: those whose time is over hear it, the others keep their places,
        unless the process drains."""
        self._waiting.appendleft(poller)
        for other in [waiting for waiting in self._waiting if waiting.over or self._draining]:
            self._waiting.remove(other)
            _answer(other, [])

    async def _claim(self, poller: Poller) -> list[Claimed]:
        want = poller.want
        try:
            agent = await self._directory.get(self._agent_id)
            limits = leases.NO_LIMITS if agent is None else ClaimLimits.of(agent.config)
            with metrics.timed(metrics.CLAIM_SECONDS):
                claimed = await leases.claim(
                    self._db,
                    agent_id=self._agent_id,
                    worker_id=want.worker_id,
                    limit=want.limit,
                    lease_seconds=want.lease_seconds,
                    claim_id=want.claim_id,
                    limits=limits,
                )
        except BaseException:
            self._waiting.appendleft(poller)  # it is answered with the others
            raise
        for lease in claimed:
            metrics.count_transition(TaskState.WORKING)
            self._wakeups.bump(task_key(lease.tenant, lease.task_id))
        metrics.LEASES.inc(len(claimed))
        return claimed


def _answer(poller: Poller, claimed: list[Claimed]) -> None:
    if not poller.answer.done():
        poller.answer.set_result(claimed)
