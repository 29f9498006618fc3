"""The traps of legacy-tasks.md, each on a bare socket with a reader as naive as the client that fell into them."""

import asyncio
import json
import re
from urllib.parse import urlsplit

import httpx
import pytest

from tests.integration.legacy.clients import legacy_stream, naive, raw_events
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, artifact, status

HARD = "ü 漢 \U0001f600 one\u2028two\u2029three\x85four\r\nfive\rsix\n\nseven \x7f é́"
Replicas = tuple[BrokerProcess, BrokerProcess]


async def submit(http: httpx.AsyncClient, **fields: object) -> str:
    answer = await http.post("tasks", json={"skill": "test"} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


async def finished(http: httpx.AsyncClient, worker: LeaseWorker) -> str:
    """A completed task: WORKING, two progresses, an artifact, the end."""
    task_id = await submit(http)
    lease = await worker.lease_one()
    await worker.write(lease, status("WORKING", HARD), status("WORKING", "on"))
    await worker.write(lease, artifact("a", HARD), status("COMPLETED", "done"))
    return task_id


async def whole_stream(replicas: Replicas, agent: str, task_id: str) -> bytes:
    async with legacy_stream(replicas[0], agent, task_id) as stream:
        await stream.head()
        return await stream.rest()


async def test_trap_1_line_ends_are_lf(
    replicas: Replicas, agent: str, http: httpx.AsyncClient, worker: LeaseWorker
) -> None:
    raw = await whole_stream(replicas, agent, await finished(http, worker))
    assert b"\r" not in raw
    assert [name for name, _ in naive(raw)] == ["state", "progress", "progress", "artifact", "state"]


async def test_trap_2_one_data_line_with_the_space(
    replicas: Replicas, agent: str, http: httpx.AsyncClient, worker: LeaseWorker
) -> None:
    raw = await whole_stream(replicas, agent, await finished(http, worker))
    blocks = raw.decode().split("\n\n")
    assert blocks.pop() == ""
    for block in blocks:
        lines = [line for line in block.split("\n") if line.startswith("data:")]
        assert len(lines) == 1
        assert lines[0].startswith("data: {")


async def test_trap_3_json_is_ascii(
    replicas: Replicas, agent: str, http: httpx.AsyncClient, worker: LeaseWorker
) -> None:
    """Decoded byte by byte, also by a reader that takes U+2028 and its like for line ends; other doors send UTF-8."""
    task_id = await finished(http, worker)
    raw = await whole_stream(replicas, agent, task_id)
    assert raw.isascii()
    events = naive(raw)
    assert [data["message"] for name, data in events if name == "progress"] == [HARD, "on"]
    assert [data["artifact"]["content"] for name, data in events if name == "artifact"] == [HARD]
    lines = [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: ")]
    assert lines == [data for _, data in events]
    assert "漢" in (await http.get(f"tasks/{task_id}")).text, "escaped on the stream only"


async def test_trap_4_status_200_ids_and_comments(
    replicas: Replicas, agent: str, http: httpx.AsyncClient, worker: LeaseWorker
) -> None:
    """Exactly 200, also when nothing is left to send; ids come all the same, heartbeats are comments in no block of
    their own."""
    task_id = await submit(http)
    async with legacy_stream(replicas[0], agent, task_id) as stream:
        await stream.head()
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert (stream.headers["x-accel-buffering"], stream.headers["cache-control"]) == ("no", "no-cache")
        raw = await stream.until(b": hb\n")
        assert naive(raw) == [], "no event says that there is none"
        await worker.write(await worker.lease_one(), status("COMPLETED"))
        raw += await stream.rest()
    assert [(data["from"], data["to"]) for _, data in naive(raw)] == [
        ("submitted", "working"),
        ("working", "completed"),
    ]
    ids = re.findall(rb"^id: (.*)$", raw, re.MULTILINE)
    assert ids == [b"1.3", b"1.4"]
    async with legacy_stream(replicas[0], agent, task_id, last_event_id="1.4") as stream:
        await stream.head()
        assert stream.status == 200
        assert naive(await stream.rest()) == []


@pytest.mark.parametrize("path", ["tasks/", "tasks//", "tasks/{id}/", "tasks/{id}/stream/", "tasks/{id}/cancel/", ""])
async def test_trap_5_no_redirects(replicas: Replicas, agent: str, http: httpx.AsyncClient, path: str) -> None:
    """What looks nearly right is answered for what it is: never with a status that this client takes for success."""
    methods = ("GET", "POST") if path else ("GET",)  # a POST to the base URL is JSON-RPC, which this client never sends
    path = path.format(id=await submit(http))
    for method in methods:
        answer = await http.request(method, path, json={"skill": "test"} if method == "POST" else None)
        assert answer.status_code >= 400
        assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b""),
        ({"Content-Length": "0"}, b""),
        ({"Content-Length": "0", "Content-Type": "application/json"}, b""),
        ({"Content-Type": "application/json"}, b"{}"),
        ({"Content-Type": "application/json; charset=utf-8"}, b'{"reason": "no longer needed"}'),
        ({"Content-Type": "text/plain"}, b"please"),
    ],
)
async def test_trap_6_cancel_needs_no_body(
    replicas: Replicas, agent: str, http: httpx.AsyncClient, headers: dict[str, str], body: bytes
) -> None:
    task_id = await submit(http)
    if body:
        headers = headers | {"Content-Length": str(len(body))}
    answer = await send_raw(replicas[0], f"/agents/{agent}/tasks/{task_id}/cancel", headers, body)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), answer
    shown = json.loads(content)
    assert (shown["id"], shown["state"]) == (task_id, "canceled")


async def send_raw(broker: BrokerProcess, path: str, headers: dict[str, str], body: bytes) -> bytes:
    """A POST with these headers and no others but Host, Authorization and Connection; the whole answer."""
    address = urlsplit(broker.base_url)
    headers = {"Host": address.netloc, "Connection": "close"} | bearer(mint("a")) | headers
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        answer = await reader.read()
        writer.close()
    return answer


async def test_trap_7_replay_from_the_start_to_the_end(
    replicas: Replicas, agent: str, http: httpx.AsyncClient, worker: LeaseWorker
) -> None:
    """A live reader, one who comes when all is over, and either replica: the same events. With a Last-Event-ID the
    suffix, with its first ``from`` as it was; a cursor of no use counts as none."""
    task_id = await submit(http)
    async with legacy_stream(replicas[1], agent, task_id) as live:
        await live.head()
        lease = await worker.lease_one()
        await worker.write(lease, status("WORKING", "half"), artifact("a", "x"))
        await worker.write(lease, status("COMPLETED", "done"))
        told = naive(await live.rest())
    names = ["state", "progress", "artifact", "state"]
    assert [name for name, _ in told] == names
    for replica in replicas:
        assert await raw_events(replica, agent, task_id) == told
    ids = [f"1.{seq}" for seq in (3, 4, 5, 6)]  # 2 is turn.started
    for position, last in enumerate(ids, 1):
        assert await raw_events(replicas[0], agent, task_id, last_event_id=last) == told[position:]
    for whole in ("", "0", "1.0", "1.99", "7.4"):
        assert await raw_events(replicas[0], agent, task_id, last_event_id=whole) == told
    async with legacy_stream(replicas[0], agent, task_id, last_event_id="x") as stream:
        await stream.head()
        assert stream.status == 400


async def test_trap_8_at_most_10_mb(
    replicas: Replicas, agent: str, http: httpx.AsyncClient, worker: LeaseWorker
) -> None:
    """Of a task with more, the largest contents are left out; what is small stays."""
    task_id = await submit(http)
    lease = await worker.lease_one()
    for name, size in (("large", 3_500_000), ("larger", 3_600_000), ("small", 10)):
        await worker.write(lease, artifact(name, "x" * size))
    await worker.write(lease, artifact("last", "y" * 3_400_000), status("COMPLETED"))
    answer = await http.get(f"tasks/{task_id}")
    assert len(answer.content) < 10_000_000
    shown = answer.json()
    sizes = {one["id"]: len(one["content"]) if one["content"] else one["content"] for one in shown["artifacts"]}
    assert sizes == {"large": None, "larger": None, "small": 10, "last": 3_400_000}
    assert "omitted" in shown["artifacts"][1]["metadata"]
    assert len(shown["output"]) == 3_400_000
