"""The worker of the broker's side: leases tasks over HTTP and sends each event in a call of its own, as P1 asks.

Started by ``lifecycles.py`` in a process of its own: ``python -m tests.bench.worker '{"port", "token", "agent",
"concurrency"}'``. Ends at SIGTERM; ends with an error at the first answer that is not 200.
"""

import asyncio
import sys
from typing import Any

import orjson
import uvloop

from tests.bench.http import Connection, request_head
from tests.bench.scenario import ARTIFACT_ID, CHUNKS

WAIT_SECONDS = 10


def lifecycle_events() -> list[bytes]:
    """The bodies of one lease's calls: two artifact events, then COMPLETED. The claim itself has written WORKING."""
    events: list[dict[str, Any]] = [
        {
            "artifactUpdate": {
                "artifact": {"artifactId": ARTIFACT_ID, "parts": [{"text": chunk}]},
                "append": index > 0,
                "lastChunk": index == len(CHUNKS) - 1,
            }
        }
        for index, chunk in enumerate(CHUNKS)
    ]
    events.append({"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}})
    return [orjson.dumps({"events": [event]}) for event in events]


class Worker:
    """One claim loop; every lease it gets is worked on at once, over a connection of its own."""

    def __init__(self, port: int, token: str, agent: str, concurrency: int) -> None:
        self._port = port
        self._token = token
        self._claim_head = request_head(f"/v1/agents/{agent}/leases", port, token)
        self._concurrency = concurrency
        self._free: asyncio.Queue[Connection] = asyncio.Queue()
        self._bodies = lifecycle_events()

    async def work(self) -> None:
        """Claims until canceled. Raises RuntimeError at an answer that is not 200."""
        claims = await Connection.open(self._port)
        for _ in range(self._concurrency):
            self._free.put_nowait(await Connection.open(self._port))
        async with asyncio.TaskGroup() as group:
            while True:
                connections = [await self._free.get()]
                while not self._free.empty():
                    connections.append(self._free.get_nowait())
                for lease in await self._claim(claims, len(connections)):
                    group.create_task(self._finish(connections.pop(), lease["leaseId"]))
                for connection in connections:
                    self._free.put_nowait(connection)

    async def _claim(self, claims: Connection, most: int) -> list[dict[str, Any]]:
        body = orjson.dumps({"workerId": "bench", "max": min(most, 100), "waitSeconds": WAIT_SECONDS})
        return (await self._call(claims, self._claim_head, body))["leases"]

    async def _finish(self, connection: Connection, lease_id: str) -> None:
        head = request_head(f"/v1/leases/{lease_id}/events", self._port, self._token)
        for body in self._bodies:
            await self._call(connection, head, body)
        self._free.put_nowait(connection)

    async def _call(self, connection: Connection, head: bytes, body: bytes) -> dict[str, Any]:
        status, answer = await connection.request(head, body)
        if status != 200:
            raise RuntimeError(f"{head.split(b' ', 2)[1].decode()}: {status} {answer[:500].decode(errors='replace')}")
        return orjson.loads(answer)


if __name__ == "__main__":
    uvloop.run(Worker(**orjson.loads(sys.argv[1])).work())
