"""One side of the comparison of doors: an ASGI application whose operations only give a canned answer.

Started by ``doors.py``: ``python -m tests.bench.door_side broker|sdk``. Reads a JSON line ``{"call", "count"}`` at a
time and prints ``{"microseconds"}``, the processor time of one call from the ASGI scope to the last byte of the answer;
with ``{"call"}`` alone ``{"status", "answer"}``. No socket and no HTTP server is in it: those are the same for both.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.bench.door_calls import CALLS, DoorCall

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(frozen=True)
class Application:
    """``bases``: the path of each door."""

    app: Asgi
    bases: dict[str, str]
    token: str | None = None


def _scope(application: Application, call: DoorCall) -> dict[str, Any]:
    path = application.bases[call.door] + call.path
    headers = [(b"host", b"127.0.0.1:8080"), (b"accept", b"application/json"), (b"user-agent", b"bench")]
    if call.version:
        headers.append((b"a2a-version", call.version.encode()))
    if application.token is not None:
        headers.append((b"authorization", f"Bearer {application.token}".encode()))
    if content := call.content():
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    return {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http",
        "method": call.method, "path": path, "raw_path": path.encode(), "query_string": call.query.encode(),
        "root_path": "", "headers": headers, "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 8080), "state": {},
    }  # fmt: skip


async def _call(application: Application, scope: dict[str, Any], content: bytes) -> tuple[int, bytes]:
    status, body = 0, b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            body += message.get("body", b"")

    # the HTTP server makes a scope of its own for each request, and routers write into it
    await application.app({**scope, "headers": list(scope["headers"]), "state": {}}, receive, send)
    return status, body


async def _measure(application: Application, call: DoorCall, count: int) -> float:
    """Microseconds of processor time for one call."""
    scope, content = _scope(application, call), call.content()
    gc.collect()
    begun = time.process_time_ns()
    for _ in range(count):
        await _call(application, scope, content)
        await asyncio.sleep(0)  # in a server the loop turns between two calls; until it does, timers only pile up
    return (time.process_time_ns() - begun) / 1000 / count


async def _serve(application: Application) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        call = CALLS[order["call"]]
        if "count" in order:
            result: dict[str, Any] = {"microseconds": await _measure(application, call, order["count"])}
        else:
            status, body = await _call(application, _scope(application, call), call.content())
            answer = json.loads(body)
            result = {"status": status, "answer": answer["result"] if call.envelope and "result" in answer else answer}
        print(json.dumps(result), flush=True)


def main() -> None:
    if sys.argv[1] == "broker":
        from tests.bench.broker_door import application
    else:
        from tests.bench.sdk_door import application
    print(json.dumps({"ready": True}), flush=True)
    asyncio.run(_serve(application()))


if __name__ == "__main__":
    main()
