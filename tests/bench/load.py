"""The load generator: clients that send one blocking message after another and check each answer. The same for both
sides.

Started by ``lifecycles.py`` in a process of its own: ``python -m tests.bench.load '{"port", "path", "token", "clients",
"warmup", "seconds"}'``; prints one JSON line ``{"answered", "completed", "seconds", "rate", "p50", "p99", "errors",
"first_error"}`` (milliseconds).
"""

import asyncio
import json
import statistics
import sys
import time
import uuid
from dataclasses import dataclass, field

import uvloop

from tests.bench.http import Connection, request_head
from tests.bench.scenario import CHUNKS


@dataclass
class Tally:
    """Counts what happened inside the measured window."""

    begins: float
    ends: float
    latencies: list[float] = field(default_factory=list[float])
    answered: int = 0
    errors: int = 0
    first_error: str | None = None

    def record(self, started: float, finished: float, problem: str | None) -> None:
        if problem is not None:
            self.errors += 1
            self.first_error = self.first_error or problem
            return
        self.answered += 1
        if self.begins <= finished < self.ends:
            self.latencies.append(finished - started)

    def summary(self) -> dict[str, object]:
        seconds = self.ends - self.begins
        milliseconds = [latency * 1000 for latency in self.latencies] or [0.0]
        centiles = statistics.quantiles(milliseconds, n=100) if len(milliseconds) > 1 else milliseconds * 99
        return {
            "answered": self.answered,
            "completed": len(self.latencies),
            "seconds": seconds,
            "rate": len(self.latencies) / seconds,
            "p50": centiles[49],
            "p99": centiles[98],
            "errors": self.errors,
            "first_error": self.first_error,
        }


def message_body() -> bytes:
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "Please write the report."}]}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}).encode()


def problem_with(status: int, body: bytes) -> str | None:
    """None for the answer of a whole lifecycle: COMPLETED with the artifact's two chunks."""
    try:
        task = json.loads(body)["result"]["task"]
        text = "".join(part["text"] for part in task["artifacts"][0]["parts"])
        if status == 200 and task["status"]["state"] == "TASK_STATE_COMPLETED" and text == "".join(CHUNKS):
            return None
    except (ValueError, LookupError, TypeError):
        pass
    return f"{status} {body[:500].decode(errors='replace')}"


async def client(port: int, head: bytes, tally: Tally) -> None:
    connection = await Connection.open(port)
    while (started := time.monotonic()) < tally.ends:
        try:
            status, body = await connection.request(head, message_body())
        except OSError as error:
            tally.record(started, time.monotonic(), repr(error))
            connection = await Connection.open(port)
        else:
            tally.record(started, time.monotonic(), problem_with(status, body))
    connection.close()


async def main(port: int, path: str, token: str, clients: int, warmup: float, seconds: float) -> None:
    head = request_head(path, port, token, A2A_Version="1.0")
    now = time.monotonic()
    tally = Tally(begins=now + warmup, ends=now + warmup + seconds)
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client(port, head, tally))
    print(json.dumps(tally.summary()))


if __name__ == "__main__":
    uvloop.run(main(**json.loads(sys.argv[1])))
