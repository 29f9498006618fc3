"""CancelTask against COMPLETED from two replicas at once (resume-contract.md, Cancel against complete, scenario 21)."""

import asyncio
import itertools
import random
from collections import Counter
from typing import Any, Self
from uuid import uuid4

import httpx
import pytest

from tests.contract.doors import Door, DoorError, say, state
from tests.fault.clients import log_of
from tests.fault.conftest import Pair, register
from tests.fault.logged import TERMINAL, parse
from tests.fault.replicas import Replicas
from tests.fault.scale import SCALE
from tests.support.calls import info
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker, artifact, status

Json = dict[str, Any]
PAIRS = 500 * SCALE
AT_ONCE = 16


@pytest.mark.slow
@pytest.mark.timeout(180 * SCALE)
async def test_five_hundred_cancels_against_completions(replicas: Pair) -> None:
    """One terminal event each, both sides told the truth, and nothing after it."""
    agent = f"agent-{uuid4().hex[:8]}"
    register(replicas, agent, cancelGraceSeconds=0, leaseSeconds=120)
    gate = asyncio.Semaphore(AT_ONCE)
    async with Race(replicas, agent) as race:

        async def one(lease: Json) -> str:
            async with gate:
                return await race.run(lease)

        winners = Counter(await asyncio.gather(*map(one, await race.lease(PAIRS))))
    print(winners)
    assert winners.total() == PAIRS
    assert min(winners["CANCELED"], winners["COMPLETED"]) > PAIRS // 20, "it was no race"


class Race:
    """Doors of both kinds and workers at both replicas. Use as an async context manager."""

    def __init__(self, pair: Pair, agent: str) -> None:
        urls = [broker.base_url for broker in pair]
        self._replicas = Replicas(urls, mint("a"))
        self._doors = [[Door(name, url, agent, mint("a")) for name in ("jsonrpc", "rest")] for url in urls]
        self._workers = [LeaseWorker(url, agent) for url in urls]
        self._rng = random.Random()
        self._lead = 0.0
        """How much later than its cancel a completion is sent: moved so that both sides win about as often."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for door in itertools.chain(*self._doors):
            await door.http.aclose()
        for worker in self._workers:
            await worker.http.aclose()
        await self._replicas.__aexit__(None, None, None)

    async def lease(self, count: int) -> list[Json]:
        """The leases of new tasks."""
        for number in range(count):
            await self._doors[number % 2][0].send(say("go"), now=True)
        leases: list[Json] = []
        while len(leases) < count:
            leases += await self._workers[len(leases) % 2].lease(max=50)
        return leases

    async def run(self, lease: Json) -> str:
        """Cancel and complete; the state that won, after everybody's answer has been held against the log."""
        task, place = lease["taskId"], self._rng.randrange(2)
        cancel_at = [1 - place, place] if self._rng.random() < 0.3 else [1 - place]
        cancels = [self._cancel(at, task) for at in cancel_at]
        completed, canceled = await asyncio.gather(self._complete(place, lease), asyncio.gather(*cancels))
        log = [parse(frame) for frame in await log_of(self._replicas, task)]
        assert [event.seq for event in log if event.state in TERMINAL] == [len(log)]
        won = log[-1].state
        self._lead += 0.001 if won == "COMPLETED" else -0.001
        if won == "COMPLETED":
            assert completed.status_code == 200, completed.text
            assert (completed.json()["state"], completed.json()["lastSeq"]) == ("TASK_STATE_COMPLETED", len(log))
            assert set(canceled) == {"TASK_NOT_CANCELABLE TASK_STATE_COMPLETED"}
        else:
            self._told_terminal(completed, won, len(log))
            assert "CANCELED" in canceled
            assert set(canceled) <= {"CANCELED", "TASK_NOT_CANCELABLE TASK_STATE_CANCELED"}
        self._told_terminal(await self._workers[1 - place].events(lease, artifact("late", "x")), won, len(log))
        assert await self._cancel(place, task) == f"TASK_NOT_CANCELABLE TASK_STATE_{won}"
        assert len(await log_of(self._replicas, task)) == len(log), "nothing follows the terminal event"
        return won

    async def _complete(self, place: int, lease: Json) -> httpx.Response:
        await asyncio.sleep(max(0, self._lead))
        return await self._workers[place].events(lease, artifact("x", "y"), status("COMPLETED"))

    async def _cancel(self, place: int, task: str) -> str:
        """The state of the Task, or the error's reason and the state that it names."""
        await asyncio.sleep(max(0, -self._lead))
        try:
            return state(await self._rng.choice(self._doors[place]).cancel(task))
        except DoorError as error:
            return f"{error.reason} {error.metadata['state']}"

    def _told_terminal(self, answer: httpx.Response, won: str, seq: int) -> None:
        told = info(answer)
        assert (answer.status_code, told["reason"]) == (409, "TASK_TERMINAL")
        assert (told["metadata"]["state"], told["metadata"]["terminalSeq"]) == (f"TASK_STATE_{won}", str(seq))
