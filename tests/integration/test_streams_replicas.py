"""Two gateways on one database: send on one, stream on the other, cancel on either; cuts are resumed exactly.

resume-contract.md, scenarios 2, 3 and 21; issue step (c).
"""

import asyncio
import json
import random

import pytest

from tests.contract.doors import Door, DoorError, Json, say, short, state
from tests.integration.raw_http import RawStream
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, artifact, status

Pair = tuple[BrokerProcess, BrokerProcess]
EVENTS = 120
READERS = 8
CUTS_PER_READER = 40


@pytest.fixture
def pair(broker_pair: Pair) -> Pair:
    broker_pair[0].register_agent("clerk", cancelGraceSeconds=1)
    return broker_pair


async def test_send_on_one_stream_on_the_other_cancel_on_either(pair: Pair) -> None:
    one, two = pair
    async with (
        Door("jsonrpc", one.base_url, "clerk", mint("a")) as here,
        Door("rest", two.base_url, "clerk", mint("a")) as there,
        LeaseWorker(two.base_url, "clerk") as worker,
    ):
        blocking = asyncio.create_task(here.send(say("go")))
        lease = await worker.lease_one()
        async with there.open("SubscribeToTask", {"id": lease["taskId"]}) as stream:
            assert short(await stream.next() or {}) == "task WORKING"
            await worker.write(lease, artifact("x", "y"), status("COMPLETED"))
            assert [short(item) for item in await stream.rest()] == ["x=y", "COMPLETED"]
        assert state(await blocking) == "COMPLETED"
        for canceler in (here, there):
            task = await here.send(say("go"), now=True)
            async with there.open("SubscribeToTask", {"id": task["id"]}) as stream:
                assert short(await stream.next() or {}) == "task SUBMITTED"
                await canceler.cancel(task["id"])
                assert [short(item) for item in await stream.rest()] == ["CANCELED"]


def without_covers(raw: bytes) -> tuple[bytes, ...]:
    """A frame without what belongs to the connection: its comments, and ``covers``."""
    lines = [line for line in raw.split(b"\n") if line and not line.startswith((b":", b"retry:"))]
    data: Json = json.loads(lines[-1].removeprefix(b"data: "))
    del data["covers"]
    return (*lines[:-1], json.dumps(data).encode())


class CutReader:
    """Follows a task and loses its connection again and again, at any byte; each time it goes to another replica."""

    def __init__(self, pair: Pair, task_id: str, seed: int) -> None:
        self._pair = pair
        self._path = f"/v1/tasks/{task_id}/events"
        self._random = random.Random(seed)
        self._subject = f"u{seed}"
        self._cursor = ""
        self.frames: list[tuple[bytes, ...]] = []
        self.cuts = 0

    async def read(self) -> None:
        while True:
            replica = self._pair[self.cuts % 2]
            headers = bearer(mint("a", self._subject)) | ({"Last-Event-ID": self._cursor} if self._cursor else {})
            async with RawStream(replica.base_url, "GET", self._path, headers) as stream:
                await stream.head()
                if stream.status == 204:
                    return
                assert stream.status == 200
                if await self._take(stream):
                    return
            self.cuts += 1

    async def _take(self, stream: RawStream) -> bool:
        """Frames until the cut (False) or the end of the log (True). A frame that was cut in two does not count."""
        budget = self._random.randrange(1, 2500) if self.cuts < CUTS_PER_READER else 10**9
        received = 0
        while received < budget:
            try:
                frame = await stream.until(b"\n\n")
            except AssertionError:
                return True
            received += len(frame)
            if received > budget:
                break
            self._keep(frame)
        stream.reset()
        return False

    def _keep(self, raw: bytes) -> None:
        frame = without_covers(raw)
        self._cursor = frame[0].removeprefix(b"id: ").decode()
        self.frames.append(frame)


async def test_hundreds_of_cuts_lose_nothing_and_repeat_nothing(pair: Pair) -> None:
    async with (
        Door("jsonrpc", pair[0].base_url, "clerk", mint("a")) as door,
        LeaseWorker(pair[0].base_url, "clerk") as worker,
    ):
        task = await door.send(say("go"), now=True)
        lease = await worker.lease_one()
        readers = [CutReader(pair, task["id"], seed) for seed in range(READERS)]
        reading = [asyncio.create_task(reader.read()) for reader in readers]
        for number in range(EVENTS):
            await worker.write(lease, artifact(f"x{number % 3}", f"{number} ü\u2028", append=number >= 3))
            if number % 10 == 0:
                await worker.heartbeat(lease)
        while min(reader.cuts for reader in readers) < CUTS_PER_READER:
            await worker.write(lease, status("WORKING", "waiting for the readers"))
            await worker.heartbeat(lease)
            await asyncio.sleep(0.05)
        await worker.write(lease, status("COMPLETED"))
        await asyncio.wait_for(asyncio.gather(*reading), 60)
        answer = await door.http.get(f"/v1/tasks/{task['id']}/events")
    log = [without_covers(frame) for frame in answer.content.split(b"\n\n") if b"id: " in frame]
    assert [frame[0] for frame in log] == [f"id: 1.{seq}".encode() for seq in range(1, len(log) + 1)]
    for reader in readers:
        assert reader.frames == log
    assert sum(reader.cuts for reader in readers) >= READERS * CUTS_PER_READER


@pytest.mark.slow
async def test_scenario_21_cancel_and_complete_race_on_two_replicas(pair: Pair) -> None:
    """One terminal event each, both sides told the truth, and a subscriber on the other side sees the same end."""
    async with (
        Door("jsonrpc", pair[0].base_url, "clerk", mint("a")) as door,
        Door("rest", pair[1].base_url, "clerk", mint("a", "u2")) as other,
        LeaseWorker(pair[1].base_url, "clerk") as worker,
    ):
        wins = {"COMPLETED": 0, "CANCELED": 0}
        for batch in range(5):
            await asyncio.gather(*(door.send(say(f"{batch} {number}"), now=True) for number in range(20)))
            leases = await worker.lease(max=20)
            while len(leases) < 20:
                leases += await worker.lease(max=20)
            for winner in await asyncio.gather(*(race(door, other, worker, lease) for lease in leases)):
                wins[winner] += 1
    assert sum(wins.values()) == 100


async def race(door: Door, other: Door, worker: LeaseWorker, lease: Json) -> str:
    """The state that won, agreed on by the worker, the canceler, GetTask and the log."""
    task_id = lease["taskId"]
    delay = random.random() * 0.02

    async def cancel() -> str:
        await asyncio.sleep(delay)
        try:
            return state(await door.cancel(task_id))
        except DoorError as error:
            if error.reason != "TASK_NOT_CANCELABLE":
                raise
            return error.metadata["state"].removeprefix("TASK_STATE_")

    async def complete() -> str:
        await asyncio.sleep(0.02 - delay)
        answer = await worker.events(lease, status("CANCELED" if random.random() < 0.3 else "COMPLETED"))
        if answer.status_code == 200:
            return answer.json()["state"].removeprefix("TASK_STATE_")
        error = answer.json()["error"]
        assert (answer.status_code, error["details"][0]["reason"]) == (409, "TASK_TERMINAL")
        return error["details"][0]["metadata"]["state"].removeprefix("TASK_STATE_")

    told = set(await asyncio.gather(cancel(), complete()))
    told.add(state(await other.get(task_id)))
    page = (await other.http.get(f"/v1/tasks/{task_id}/events", headers={"Accept": "application/json"})).json()
    ends = [
        event for event in page["events"] if event.get("statusUpdate", {}).get("status", {}).get("state", "") in ENDS
    ]
    assert len(ends) == 1
    assert ends[0]["seq"] == page["terminalSeq"] == page["lastSeq"]
    told.add(ends[0]["statusUpdate"]["status"]["state"].removeprefix("TASK_STATE_"))
    assert len(told) == 1, told
    return told.pop()


ENDS = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_CANCELED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED"})


async def test_salesagent_2257_kill_9_changes_no_task_and_loses_no_event(pair: Pair) -> None:
    one, two = pair
    async with Door("jsonrpc", one.base_url, "clerk", mint("a")) as door, LeaseWorker(two.base_url, "clerk") as worker:
        task = await door.send(say("go"), now=True)
        lease = await worker.lease_one()
        await worker.write(lease, artifact("x", "A"), status("INPUT_REQUIRED", "which?"))
        before = await door.get(task["id"])
        await asyncio.to_thread(one.kill)
        one.spawn()
        await asyncio.to_thread(one.wait_ready)
        assert await door.get(task["id"]) == before
        async with (
            Door("rest", one.base_url, "clerk", mint("a")) as fresh,
            fresh.open("SubscribeToTask", {"id": task["id"]}) as stream,
        ):
            assert short(await stream.next() or {}) == "task INPUT_REQUIRED"
            await fresh.send(say("this one", taskId=task["id"]), now=True)
            await worker.write(await worker.lease_one(), artifact("x", "3", append=True), status("COMPLETED"))
            assert [short(item) for item in await stream.rest()] == ["WORKING", "WORKING", "x+3", "COMPLETED"]
