"""A body that takes seconds to read and to hash stops nobody else: neither probes nor other tenants."""

import asyncio
import json
import time
from itertools import pairwise

from tests.contract.conftest import Agent
from tests.contract.doors import Json, say
from tests.support.worker import artifact

BROKER_ENVIRONMENT = {"WAYSTATION_BLOCKING_WAIT_SECONDS": "0"}
SMALL_NUMBERS = [1e-9] * 600_000
"""3.6 MB whose canonical form takes two seconds on a processor of its own."""


async def longest_silence(agent: Agent, path: str, body: Json, headers: dict[str, str]) -> float:
    """Posts ``body``; the longest time between two answers of /livez meanwhile, as a part of the whole."""
    content = json.dumps(body, separators=(",", ":")).encode()
    http = agent.door().http
    started = time.monotonic()
    post = asyncio.create_task(http.post(path, content=content, headers={"Content-Type": "application/json"} | headers))
    answers = [started]
    while not post.done():
        assert (await http.get("/livez")).status_code == 200
        answers.append(time.monotonic())
    assert (await post).status_code == 200, (await post).text
    pauses = [after - before for before, after in pairwise(answers)]
    return max(pauses) / (answers[-1] - started)


async def test_a_large_message_stops_nobody(agent: Agent) -> None:
    message = say("go") | {"parts": [{"data": SMALL_NUMBERS}]}
    if agent.door_name == "rest":
        path, body = f"/agents/{agent.id}/a2a/message:send", {"message": message}
    else:
        params = {"message": message}
        path, body = f"/agents/{agent.id}/rpc", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    assert await longest_silence(agent, path, body, {}) < 0.4


async def test_a_large_batch_of_events_stops_nobody(agent: Agent) -> None:
    await agent.door().send(say("go"), now=True)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        event = artifact("a", "")
        event["artifactUpdate"]["artifact"]["parts"] = [{"data": SMALL_NUMBERS}]
        headers = {"Authorization": worker.http.headers["Authorization"]}
        path = f"/v1/leases/{lease['leaseId']}/events"
        assert await longest_silence(agent, path, {"events": [event]}, headers) < 0.4
