"""The worker: its agents, and a service that claims, works, keeps leases and ends in good order."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit
from uuid import uuid4

from waystation_worker.agent import Agent, Handler
from waystation_worker.aside import all_of, end, first_of
from waystation_worker.broker import Broker, Token
from waystation_worker.claims import Claims
from waystation_worker.heartbeat import MAX_LEASES, Heartbeat

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor

logger = logging.getLogger(__name__)

RELEASE_SECONDS = 5.0
"""How long handlers may take to stop, and their leases to be given back, after the grace."""


class Worker:
    """Works on the tasks of one or more agents of a Waystation broker.

    ``url`` and ``token`` default to the environment's WAYSTATION_URL and WAYSTATION_TOKEN. ``token`` needs the scope
    worker:lease and names the agents; a function in its place is asked for the current one before each request.
    ``concurrency`` is the number of turns worked on at once, for each agent. ``worker_id`` is a name for the
    operator's eyes. ``lease_seconds`` overrides how long the agents' leases last without a heartbeat.
    ``grace_seconds`` is how long turns may go on once the worker should stop.
    """

    def __init__(
        self,
        url: str | None = None,
        token: Token | None = None,
        *,
        concurrency: int = 8,
        worker_id: str | None = None,
        lease_seconds: float | None = None,
        grace_seconds: float = 25.0,
    ) -> None:
        self.url = url or os.environ.get("WAYSTATION_URL", "http://127.0.0.1:8080")
        self.token: Token = token or os.environ.get("WAYSTATION_TOKEN", "")
        self.concurrency = concurrency
        self.worker_id = worker_id or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        self.lease_seconds = lease_seconds
        self.grace_seconds = grace_seconds
        self._agents: dict[str, Agent] = {}

    @classmethod
    def from_executor(
        cls,
        executor: "AgentExecutor",
        *,
        agent: str,
        url: str | None = None,
        token: Token | None = None,
        concurrency: int = 8,
        worker_id: str | None = None,
        lease_seconds: float | None = None,
        grace_seconds: float = 25.0,
    ) -> Self:
        """A worker that runs an a2a-sdk AgentExecutor as it is (needs the extra ``[a2a]``). See ``executor``."""
        worker = cls(
            url,
            token,
            concurrency=concurrency,
            worker_id=worker_id,
            lease_seconds=lease_seconds,
            grace_seconds=grace_seconds,
        )
        worker.add_executor(agent, executor)
        return worker

    def agent(
        self, name: str, *, concurrency: int | None = None, full_task: bool = False, observe_cancel: bool = False
    ) -> Callable[[Handler], Handler]:
        """A decorator that makes an async function the handler of agent ``name``; the function stays as it is.

        ``full_task``: ``ctx.task`` has artifacts and the whole history. ``observe_cancel``: a cancel sets
        ``ctx.canceled`` and leaves the rest to the handler, instead of canceling its coroutine.
        """

        def register(handler: Handler) -> Handler:
            places = concurrency or self.concurrency
            self.add(Agent(name, handler, places, observe=observe_cancel, full=full_task))
            return handler

        return register

    def add_executor(self, agent: str, executor: "AgentExecutor", *, concurrency: int | None = None) -> None:
        """Lets an a2a-sdk AgentExecutor work for ``agent``, beside this worker's other agents."""
        from waystation_worker.executor import agent_of

        self.add(agent_of(agent, executor, concurrency or self.concurrency))

    def add(self, agent: Agent) -> None:
        """ValueError for a second handler of one agent, and for more leases than one heartbeat can keep."""
        if agent.name in self._agents:
            raise ValueError(f"agent {agent.name!r} has a handler already")
        if agent.concurrency < 1 or agent.concurrency + sum(a.concurrency for a in self._agents.values()) > MAX_LEASES:
            raise ValueError(f"a worker holds 1 to {MAX_LEASES} leases")
        self._agents[agent.name] = agent

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self._agents)

    def run(self) -> None:
        """Works until SIGTERM or SIGINT; turns then have ``grace_seconds``, or until the second signal, to end.

        Sets up logging to stderr when the program has not. Raises as ``serve`` does.
        """
        if not logging.getLogger().handlers:
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
            logging.getLogger("httpx").setLevel(logging.WARNING)
        asyncio.run(self._serve_until_signal())

    async def serve(self, stop: asyncio.Event | None = None) -> None:
        """Works until ``stop`` is set (or for ever), then drains: no new leases, running turns have their grace.

        Heartbeats go on meanwhile; what has not ended then is stopped and given back, attempt not counted. Raises
        BrokerRefused when the broker will not have this worker (token, agent), ValueError without an agent or an
        http(s) URL.
        """
        await self._serve(stop or asyncio.Event(), hurry=asyncio.Event())

    async def _serve(self, stop: asyncio.Event, *, hurry: asyncio.Event) -> None:
        if urlsplit(self.url).scheme not in {"http", "https"} or not self._agents:
            raise ValueError(f"a worker needs an http(s) URL and an agent; it has {self.url!r} and {self.agents}")
        async with Broker(self.url, self.token) as broker:
            heartbeat = Heartbeat(broker, seconds=self.lease_seconds)
            claims = [
                Claims(agent, broker, heartbeat, worker_id=self.worker_id, seconds=self.lease_seconds)
                for agent in self._agents.values()
            ]
            beating = asyncio.create_task(heartbeat.beat_forever())
            logger.info("worker %s works for %s at %s", self.worker_id, ", ".join(self.agents), self.url)
            try:
                await self._claim_until(stop, claims, beating)
            finally:
                try:
                    await self._drain(claims, hurry)
                finally:
                    await end(beating)

    async def _claim_until(self, stop: asyncio.Event, claims: Iterable[Claims], beating: asyncio.Task[None]) -> None:
        stopping = asyncio.create_task(stop.wait())
        claiming = [asyncio.create_task(each.claim_forever()) for each in claims]
        try:
            done = await first_of(stopping, beating, *claiming)
        finally:
            await end(stopping, *claiming)
        for task in done:
            task.result()

    async def _drain(self, claims: Iterable[Claims], hurry: asyncio.Event) -> None:
        working = {task: held for each in claims for task, held in each.working.items()}
        if not working:
            return
        logger.info("stopping: %d turns have %g s to end", len(working), self.grace_seconds)
        hurried, finished = asyncio.create_task(hurry.wait()), all_of(working)
        try:
            await first_of(hurried, finished, timeout=self.grace_seconds)
            for task, held in working.items():
                if not task.done():
                    held.drain()
            _, stuck = await asyncio.wait(working, timeout=RELEASE_SECONDS)
            if stuck:
                logger.warning("%d turns did not stop; their leases expire", len(stuck))
        finally:
            await end(hurried, finished, *working)

    async def _serve_until_signal(self) -> None:
        stop, hurry = asyncio.Event(), asyncio.Event()

        def asked() -> None:
            if stop.is_set():
                hurry.set()
            stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):  # Windows: Ctrl-C ends the process at once there
                loop.add_signal_handler(number, asked)
        await self._serve(stop, hurry=hurry)
