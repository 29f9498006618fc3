"""Clients, readers and workers on two gateways, all at once, while somebody kills processes; and the history of it all.

Called by the tests of chaos, of outages and of the checker. Tasks are made until ``calm`` is called; then everybody
finishes what was begun.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.fault.clients import Client, Reader, all_tasks, has_ended, log_of, pending
from tests.fault.conftest import Pair, register
from tests.fault.fleet import Fleet
from tests.fault.history import History, Hook, Op, Recorder, load
from tests.fault.hooks import FlakyReceiver
from tests.fault.replicas import Replicas
from tests.support.broker import BrokerProcess, card
from tests.support.tokens import CLIENT_SCOPE, bearer, mint

Json = dict[str, Any]
AGENT = "clerk"
LEASE_SECONDS = 1.0
HOOKED = 0.3
"""The share of tasks that have a webhook."""
SETTINGS: Json = {
    "card": card(AGENT, pushNotifications=True),
    "leaseSeconds": LEASE_SECONDS,
    "cancelGraceSeconds": 0.3,
    "retry": {"maxAttempts": 100, "backoffSeconds": 0, "maxBackoffSeconds": 0},
}
FOLLOW_UP: Json = {"chunks": 1, "end": "COMPLETED"}
KEEPER_SECONDS = 0.1


class Storm:
    """``trouble`` is the share of tasks whose first lease its worker leaves: by giving it back, dying, or sleeping."""

    def __init__(self, gateways: Sequence[BrokerProcess], directory: Path, seed: int, trouble: float) -> None:
        self.gateways = gateways
        self.urls = [gateway.base_url for gateway in gateways]
        self.rng = random.Random(seed)
        self.fleet = Fleet(self.urls, AGENT, directory)
        self.replicas = Replicas(self.urls, mint("a", scope=f"{CLIENT_SCOPE} push:write"))
        self.receiver = FlakyReceiver(random.Random(seed))
        self.ended = 0
        """Tasks that have ended and whose client knows it."""
        self._directory = directory
        self._trouble = trouble
        self._calm = asyncio.Event()
        self._fresh: deque[str] = deque(maxlen=50)
        self._hooks: list[Hook] = []
        self._readers: list[Reader] = []
        self._actors: list[asyncio.Task[None]] = []

    async def start(self, *, clients: int, readers: int, workers: int) -> None:
        await self.receiver.start()
        self.fleet.spawn(workers)
        self._keeper = asyncio.create_task(self._keep())
        for number in range(clients):
            self._actors.append(asyncio.create_task(self._client(number)))
        for number in range(readers):
            token = bearer(mint("a", f"reader-{number}"))
            self._readers.append(Reader(self.urls, token, random.Random(self.rng.random())))
            self._actors.append(asyncio.create_task(self._reader(self._readers[-1])))

    async def until_ended(self, count: int) -> None:
        """Wait until so many more tasks have ended."""
        wanted = self.ended + count
        while self.ended < wanted:
            self.check_actors()
            await asyncio.sleep(0.05)

    async def calm(self, seconds: float = 120) -> History:
        """No new tasks; wait until all have ended and all webhooks have heard of it; the whole history."""
        self._calm.set()
        async with asyncio.timeout(seconds):
            await asyncio.gather(*self._actors)
            while await pending(self.replicas):
                await asyncio.sleep(0.2)
        self.check_actors()
        return await self.history()

    async def history(self) -> History:
        """What has happened so far, with the logs of all tasks there are."""
        tasks = await all_tasks(self.replicas, AGENT)
        gate = asyncio.Semaphore(8)

        async def read(task: str) -> None:
            async with gate:
                logs[task] = await log_of(self.replicas, task)

        logs: dict[str, Any] = {}
        await asyncio.gather(*map(read, tasks))
        reads = [read for reader in self._readers for read in reader.reads]
        return History(
            self.ops(), reads, list(self._hooks), list(self.receiver.notified), logs,
            cancel_seconds=15, lease_seconds=LEASE_SECONDS, expiry_slack=15,
        )  # fmt: skip

    def ops(self) -> list[Op]:
        """What clients and workers have done so far."""
        return load(sorted(self._directory.glob("client-*.jsonl"))) + self.fleet.ops()

    async def close(self) -> None:
        for actor in (*self._actors, self._keeper):
            actor.cancel()
        await asyncio.gather(*self._actors, self._keeper, return_exceptions=True)
        await self.replicas.__aexit__(None, None, None)
        await self.receiver.stop()
        self.fleet.close()

    def check_actors(self) -> None:
        """Raise what an actor has failed with."""
        for actor in (*self._actors, self._keeper):
            if actor.done():
                actor.result()

    async def _keep(self) -> None:
        while True:
            self.fleet.revive()
            await asyncio.sleep(KEEPER_SECONDS)

    async def _client(self, number: int) -> None:
        rng = random.Random(self.rng.random())
        name = f"client-{number}"
        recorder = Recorder(self._directory / f"{name}.jsonl", name)
        client = Client(self.replicas, AGENT, recorder)
        try:
            while not self._calm.is_set():
                await self._story(client, rng)
                self.ended += 1
        finally:
            recorder.close()

    async def _story(self, client: Client, rng: random.Random) -> None:
        """One task from its first message to its end."""
        asks = rng.random() < 0.15
        first = rng.choice(["retry", "release", "die", "sleep"]) if rng.random() < self._trouble else None
        plan: Json = {"chunks": rng.randrange(1, 5), "end": "INPUT_REQUIRED" if asks else "COMPLETED", "first": first}
        last: Json = {"plan": plan, "key": uuid4().hex}
        if rng.random() < HOOKED:
            last["hook"] = self.receiver.url("/hook")
        op = await client.send(**last, wait=rng.random() < 0.3)
        if "hook" in last:
            self._hooks.append(Hook(op.task, op.key, after=1))
        self._fresh.append(op.task)
        what = rng.random()
        if what < 0.15:
            op = await client.cancel(op.task)
        elif what < 0.35:
            last = {"plan": FOLLOW_UP, "key": uuid4().hex, "task": op.task}
            op = await client.send(**last, wait=rng.random() < 0.3)
        while not has_ended(op):
            if op.state == "INPUT_REQUIRED":
                last = {"plan": FOLLOW_UP, "key": uuid4().hex, "task": op.task}
            op = await client.send(**last, wait=True)  # again: waits for its turn's end

    async def _reader(self, reader: Reader) -> None:
        while not self._calm.is_set():
            if self._fresh:
                await reader.follow(self._fresh.popleft(), cuts=0.7)
            else:
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def storm(
    gateways: Pair, directory: Path, seed: int, *, trouble: float = 0.04, **actors: int
) -> AsyncGenerator[Storm]:
    """A storm over an agent registered for it; its processes end with the block."""
    register(gateways, AGENT, **SETTINGS)
    storm = Storm(gateways, directory, seed, trouble)
    try:
        await storm.start(**actors)
        yield storm
    finally:
        await storm.close()
