"""A worker process that is stopped past its lease and continued writes nothing (resume-contract.md, scenario 27)."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.contract.doors import Door, say, text
from tests.fault.clients import log_of
from tests.fault.conftest import Pair, register
from tests.fault.fleet import Fleet
from tests.fault.history import NEVER, OK, REFUSED, Op
from tests.fault.logged import Logged, parse
from tests.fault.replicas import Replicas
from tests.fault.watching import until
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker, artifact, status

EVERYTHING = 9
"""What the defying worker tries in one round (work.py)."""


@pytest.fixture
def agent(replicas: Pair) -> str:
    name = f"agent-{uuid4().hex[:8]}"
    register(replicas, name, leaseSeconds=1, retry={"maxAttempts": 3, "backoffSeconds": 0})
    return name


@pytest.fixture
def fleet(replicas: Pair, agent: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet([broker.base_url for broker in replicas], agent, tmp_path)
    yield fleet
    fleet.close()
    print(fleet.output())


class Stopped:
    """A task whose worker process is defying its lost lease."""

    def __init__(self, client: Replicas, fleet: Fleet, task: str) -> None:
        self._client, self._fleet, self._task = client, fleet, task

    def accepted(self) -> list[str]:
        """The marks of all that it was told to be written."""
        return [mark for op in self._fleet.ops() if op.kind == "write" and op.outcome == OK for mark in op.marks]

    async def log(self) -> list[Logged]:
        return [parse(frame) for frame in await log_of(self._client, self._task)]

    async def expired(self) -> None:
        async with asyncio.timeout(20):
            while (await self.log())[-1].reason != "LEASE_EXPIRED":
                await asyncio.sleep(0.02)

    async def refused(self, reason: str, state: str) -> None:
        """Everything that it tries from now on is refused, and leaves nothing in the log."""
        since, before = time.time(), await self.log()

        def tried() -> list[Op]:
            return [op for op in self._fleet.ops() if op.start > since and op.end < NEVER]

        await until(lambda: len(tried()) >= 2 * EVERYTHING)
        assert {op.kind for op in tried()} == {"write", "heartbeat", "release", "retry"}
        assert {(op.outcome, op.reason, op.state) for op in tried()} == {(REFUSED, reason, state)}
        assert await self.log() == before


@pytest.mark.slow
async def test_a_worker_stopped_past_its_lease_writes_nothing(replicas: Pair, agent: str, fleet: Fleet) -> None:
    """Neither after the lease has expired, nor under its successor, nor after the end."""
    door = Door("rest", replicas[0].base_url, agent, mint("a"))
    async with Replicas([broker.base_url for broker in replicas], mint("a")) as client:
        task = (await door.send(say(json.dumps({"defy": True})), now=True))["id"]
        stopped = Stopped(client, fleet, task)
        fleet.spawn()
        await until(lambda: len(stopped.accepted()) >= 3)
        fleet.signal(0, signal.SIGSTOP)
        await stopped.expired()
        fleet.signal(0, signal.SIGCONT)
        await stopped.refused("LEASE_LOST", "WORKING")
        async with LeaseWorker(replicas[1].base_url, agent) as other:
            lease = await other.lease_one(leaseSeconds=60)
            assert (lease["taskId"], lease["attempt"]) == (task, 2)
            await stopped.refused("LEASE_LOST", "WORKING")
            await other.write(lease, artifact("x", "of the other"), status("COMPLETED"))
        await stopped.refused("TASK_TERMINAL", "COMPLETED")
        written = [event.mark for event in await stopped.log() if event.mark.startswith(task)]
        assert written == stopped.accepted()
    assert text((await door.get(task))["artifacts"][-1]) == "of the other"
    await door.http.aclose()
