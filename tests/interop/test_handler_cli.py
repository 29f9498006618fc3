"""The command line client ``a2a-handler``, run as a program and never imported, against two replicas."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.fault.watching import gauge, until
from tests.interop.conftest import register, wait_for_card
from tests.interop.environments import CLIENTS, EnvironmentMissingError, python_environment
from tests.support.broker import BrokerProcess
from tests.support.tokens import CLIENT_SCOPE, mint
from tests.support.worker import LeaseWorker, artifact, status

pytestmark = pytest.mark.interop
Json = dict[str, Any]
SECONDS = 60


@dataclass
class Handler:
    """The program with a home and a token of its own, for one agent on two replicas."""

    program: Path
    home: Path
    token: str
    agent: str
    replicas: tuple[BrokerProcess, BrokerProcess]

    async def run(self, *arguments: str, replica: int = 0, code: int = 0) -> list[Json]:
        """What it prints, one JSON object a line; its exit code must be ``code``."""
        async with self.start(*arguments, replica=replica) as process:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate()
        assert process.returncode == code, (arguments, process.returncode, out, err)
        return [json.loads(line) for line in out.splitlines() if line.strip()]

    @asynccontextmanager
    async def start(self, *arguments: str, replica: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
        url = f"{self.replicas[replica].base_url}/agents/{self.agent}"
        command = ["--output", "ndjson", *arguments, "--url", url, "--bearer-env", "TOKEN"]
        environment = {
            "PATH": os.defpath,
            "HOME": str(self.home),
            "TOKEN": self.token,
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
        }
        process = await asyncio.create_subprocess_exec(
            str(self.program),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=self.home,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def worker(self, replica: int = 0) -> LeaseWorker:
        return LeaseWorker(self.replicas[replica].base_url, self.agent, "shop")


@pytest.fixture
def handler(replicas: tuple[BrokerProcess, BrokerProcess], tmp_path: Path) -> Handler:
    try:
        python = python_environment("handler", CLIENTS / "requirements-handler.txt")
    except EnvironmentMissingError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    name = f"agent-{uuid4().hex[:12]}"
    register(replicas[0], name)
    for replica in replicas:
        wait_for_card(f"{replica.base_url}/agents/{name}")
    return Handler(
        python.with_name("handler"), tmp_path, mint("a", "user-of-a", f"{CLIENT_SCOPE} push:write"), name, replicas
    )


def state(line: Json) -> str:
    """The state of a Task, of a StreamResponse with one, or of a statusUpdate; "" of an artifact."""
    holder = line.get("task") or line.get("statusUpdate") or line
    return holder.get("status", {}).get("state", "").removeprefix("TASK_STATE_")


async def test_card_is_read_and_valid(handler: Handler) -> None:
    (card,) = await handler.run("card", "get")
    assert card["name"] == handler.agent
    (verdict,) = await handler.run("card", "validate", replica=1)
    assert verdict["valid"] is True


async def test_send_waits_for_the_work_at_the_other_replica(handler: Handler) -> None:
    async with handler.start("message", "send", "--text", "go") as process, handler.worker(replica=1) as worker:
        lease = await worker.lease_one(wait=30)
        await worker.write(lease, artifact("stock", "A:3", last=True), status("COMPLETED", "done"))
        out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0, err
    task = json.loads(out.splitlines()[0])
    assert (task["id"], state(task)) == (lease["taskId"], "COMPLETED")
    assert task["artifacts"][0]["parts"] == [{"text": "A:3"}]


async def test_stream_and_resubscribe_to_its_end(handler: Handler) -> None:
    async with handler.start("message", "stream", "--text", "go") as process, handler.worker(replica=1) as worker:
        lease = await worker.lease_one(wait=30)
        async with handler.start("task", "resubscribe", lease["taskId"], replica=1) as second:
            await until(lambda: gauge(handler.replicas[1], "streams_open") == 1, SECONDS)
            await worker.write(lease, artifact("stock", "A:3", last=True))
            await worker.write(lease, status("COMPLETED", "done"))
            outputs = [(await asyncio.wait_for(one.communicate(), SECONDS))[0] for one in (process, second)]
        assert (process.returncode, second.returncode) == (0, 0)
    assert [b"A:3" in output and b"TASK_STATE_COMPLETED" in output for output in outputs] == [True, True]


async def test_get_list_and_cancel_on_either_replica(handler: Handler) -> None:
    (task,) = await handler.run("message", "send", "--text", "go", "--no-wait")
    (found,) = await handler.run("task", "get", task["id"], replica=1)
    assert (found["id"], state(found)) == (task["id"], "SUBMITTED")
    assert [line["id"] for line in await handler.run("task", "list", replica=1)] == [task["id"]]
    (canceled,) = await handler.run("task", "cancel", task["id"], replica=1)
    assert state(canceled) == "CANCELED"
    (found,) = await handler.run("task", "get", task["id"])
    assert state(found) == "CANCELED"


async def test_an_unknown_task_is_told_as_such(handler: Handler) -> None:
    async with handler.start("task", "get", str(uuid4())) as process:
        out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode
    assert b"not found" in (out + err).lower()


async def test_push_notification_configs_on_either_replica(handler: Handler) -> None:
    (task,) = await handler.run("message", "send", "--text", "go", "--no-wait")
    url = "https://hooks.example/of-handler"
    (made,) = await handler.run("task", "notification", "set", task["id"], "--webhook-url", url, "--token", "secret")
    (listed,) = await handler.run("task", "notification", "list", task["id"], replica=1)
    assert [(config["id"], config["url"]) for config in listed["configs"]] == [(made["id"], url)]
    (found,) = await handler.run("task", "notification", "get", task["id"], replica=1)
    assert found["url"] == url
    await handler.run("task", "notification", "remove", task["id"], "--config-id", made["id"], replica=1)
    (listed,) = await handler.run("task", "notification", "list", task["id"])
    assert listed["configs"] == []
