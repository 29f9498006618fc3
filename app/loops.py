"""One shape for all background loops: config, start, run once, stop. Loops are made and started by ``app.main``.

A loop never ends by an error: PostgreSQL being away is expected and logged once per outage; all else is logged with its
traceback, and both are tried again after a growing, jittered delay.
"""

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass

from app.errors import Unavailable

log = logging.getLogger("waystation.loops")
_random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """Seconds between two runs, each shortened at random by up to ``jitter`` (a fraction): replicas spread out.

    After a failure the next run comes after about 1 s (or ``interval``, if that is less), then after twice as long each
    time, up to ``max_backoff``.
    """

    interval: float
    jitter: float = 0.3
    max_backoff: float = 5.0

    def __post_init__(self) -> None:
        if self.interval <= 0 or not 0 <= self.jitter <= 1:
            raise ValueError(f"not a loop configuration: {self}")


class Loop(ABC):
    """Subclasses give ``run_once``; tests call it directly and never start the loop."""

    def __init__(self, name: str, config: LoopConfig) -> None:
        self.name = name
        self.config = config
        self._task: asyncio.Task[None] | None = None
        self._failures = 0

    @abstractmethod
    async def run_once(self) -> bool:
        """Do one bounded piece of work; True means that more is waiting and the next run follows at once."""

    def start(self) -> None:
        """Begin to run in the background. Starting twice is a programming error."""
        if self._task is not None:
            raise RuntimeError(f"loop {self.name} is already started")
        self._task = asyncio.create_task(self._run_forever(), name=f"loop:{self.name}")

    async def stop(self) -> None:
        """Cancel the loop and wait for its end; a loop that never started is fine."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run_forever(self) -> None:
        while True:
            more = await self._guarded()
            # sleep(0) when there is more: a long backlog must not starve the event loop
            await self._rest(0 if more else self._pause())

    async def _rest(self, seconds: float) -> None:
        """Wait until the next run; a loop that can be woken waits for that too."""
        await asyncio.sleep(seconds)

    async def _guarded(self) -> bool:
        try:
            more = await self.run_once()
        except Unavailable as error:
            if self._failures == 0:
                log.warning("loop %s: %s", self.name, error.message)
        except Exception:
            log.exception("loop %s failed", self.name)
        else:
            self._failures = 0
            return more
        self._failures += 1
        return False

    def _pause(self) -> float:
        pause = self.config.interval
        if self._failures:
            pause = min(min(pause, 1.0) * 2 ** min(self._failures, 10), self.config.max_backoff)
        return pause * (1 - self.config.jitter * _random.random())
