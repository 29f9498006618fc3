"""What the worker SDK's tests share: a plain client, workers in this process and in their own, and their agents.

The agents below are loaded by name in worker processes; the client speaks HTTP+JSON and reads the native log.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx
from waystation_worker import Context, Worker

from tests.support.broker import ROOT
from tests.support.tokens import bearer, mint, worker_token

Json = dict[str, Any]

ENDED = {"COMPLETED", "FAILED", "CANCELED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED"}
LOAD = "import sys; from waystation_worker import load; load(sys.argv[1], agent=sys.argv[2]).run()"


class Client:
    """A client of one agent, tenant a. Its calls fail the test unless the broker says yes."""

    def __init__(self, base_url: str, agent: str) -> None:
        headers = bearer(mint("a")) | {"A2A-Version": "1.0"}
        self.http = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=40, trust_env=False)
        self.door = f"/agents/{agent}/a2a"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def send(self, text: str, *, wait: bool = False, **fields: Any) -> Json:
        """The task that the message made or went on with; ``wait``: as it is at the end of its turn."""
        message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]} | fields
        body = {"message": message, "configuration": {"returnImmediately": not wait}}
        answer = await self.http.post(f"{self.door}/message:send", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["task"]

    async def task(self, task_id: str) -> Json:
        answer = await self.http.get(f"{self.door}/tasks/{task_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def cancel(self, task_id: str) -> httpx.Response:
        return await self.http.post(f"{self.door}/tasks/{task_id}:cancel", json={})

    async def events(self, task_id: str) -> list[Json]:
        """The whole log of a task."""
        answer = await self.http.get(
            f"/v1/tasks/{task_id}/events", params={"limit": 1000}, headers={"Accept": "application/json"}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()["events"]

    async def lease_expiry(self, task_id: str) -> float:
        """When the lease of a task that is being worked on ends, in POSIX seconds."""
        answer = await self.http.get(f"/v1/tasks/{task_id}")
        assert answer.status_code == 200, answer.text
        return datetime.fromisoformat(answer.json()["lease"]["expiresAt"]).timestamp()

    async def until(self, task_id: str, condition: Callable[[Json], bool], seconds: float = 30) -> Json:
        """The task, as soon as ``condition`` holds; a broker that is away meanwhile is asked again."""
        deadline = time.monotonic() + seconds
        task: Json = {}
        while time.monotonic() < deadline:
            try:
                answer = await self.http.get(f"{self.door}/tasks/{task_id}")
            except httpx.TransportError:
                answer = httpx.Response(503)
            if answer.status_code != 503:
                assert answer.status_code == 200, answer.text
                task = answer.json()
                if condition(task):
                    return task
            await asyncio.sleep(0.03)
        raise AssertionError(f"not within {seconds} s: {task}")

    async def ended(self, task_id: str, seconds: float = 30) -> Json:
        """The task at the end of its turn."""
        return await self.until(task_id, lambda task: state(task) in ENDED, seconds)


def state(task: Json) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_")


def said(task: Json) -> str:
    """The text of the status message."""
    return "".join(part["text"] for part in task["status"]["message"]["parts"])


def artifacts(task: Json) -> dict[str, str]:
    """Each artifact's id and whole text."""
    return {a["artifactId"]: "".join(part["text"] for part in a["parts"]) for a in task.get("artifacts", [])}


def chunks(events: list[Json]) -> list[str]:
    """The text of each artifact event of a log."""
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    return ["".join(part["text"] for part in update["artifact"]["parts"]) for update in updates]


def states(events: list[Json]) -> list[str]:
    """``<actor>:<state>`` of each status in a log."""
    return [f"{e['actor']['kind']}:{state(e['statusUpdate'])}" for e in events if "statusUpdate" in e]


@asynccontextmanager
async def working(worker: Worker) -> AsyncGenerator[Worker]:
    """The worker works in this process while the block lasts."""
    stop = asyncio.Event()
    service = asyncio.create_task(worker.serve(stop))
    try:
        yield worker
    finally:
        stop.set()
        await service


class WorkerProcess:
    """A worker in a process of its own, for one agent of tenant a. ``python``: another environment's interpreter."""

    def __init__(self, base_url: str, agent: str, target: str, log: Path, *, python: str = sys.executable) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "examples", ROOT / "sdk" / "python" / "src"))),
            "WAYSTATION_URL": base_url,
            "WAYSTATION_TOKEN": worker_token("a", agent),
        }
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [python, "-c", LOAD, target, agent],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        print(f"--- worker {self.process.pid}\n{self.log.read_text(errors='replace')}")


async def tell_and_wait(ctx: Context) -> str:
    """The first attempt says "begun" and never ends; later ones end at once."""
    if ctx.attempt == 1:
        await ctx.progress("begun")
        await asyncio.Event().wait()
    return f"attempt {ctx.attempt}"


async def until_told(ctx: Context) -> str:
    """Until the file is there whose path is the text."""
    await ctx.progress("begun")
    while not Path(ctx.text).exists():
        await asyncio.sleep(0.02)
    return "in time"


async def count(ctx: Context) -> str:
    """Writes as many numbers as the text says, one chunk each, each in the ledger before the next is written."""
    number = int(ctx.text)
    async with ctx.artifact("numbers") as numbers:
        for value in range(number):
            await numbers.write(f"{value} ", last=value == number - 1)
            await ctx.flush()
    return "counted"
