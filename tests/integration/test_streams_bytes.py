"""The exact bytes of streams (resume-contract.md, Frames), read from a bare socket."""

import json
import re
from collections.abc import Callable, Iterator

import pytest

from tests.contract.doors import Door, Json, say
from tests.integration.raw_http import RawStream
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, artifact, status

SEPARATORS = "one\u2028two\u2029three\x85four ü 漢 \U0001f600 \r\n five"
PREAMBLE = re.compile(rb": ok\nretry: (\d+)\n")


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    broker = start_broker(WAYSTATION_HEARTBEAT_SECONDS="1.2")
    broker.register_agent("clerk")
    return broker


def headers() -> dict[str, str]:
    return bearer(mint("a")) | {"A2A-Version": "1.0"}


def opening(raw: bytes) -> bytes:
    """What follows the preamble, whose retry must be 2000 ms ± 20 %."""
    match = PREAMBLE.match(raw)
    assert match, raw
    assert 1600 <= int(match[1]) <= 2400
    return raw[match.end() :]


async def finished(broker: BrokerProcess, text: str = "x") -> str:
    """A completed task with the artifact ``text``: 6 events."""
    door = Door("rest", broker.base_url, "clerk", mint("a"))
    task = await door.send(say("go"), now=True)
    await door.http.aclose()
    async with LeaseWorker(broker.base_url, "clerk") as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("x", text), artifact("x", text, append=True), status("COMPLETED"))
    return task["id"]


async def test_a_native_stream_byte_by_byte(broker: BrokerProcess) -> None:
    task_id = await finished(broker)
    async with RawStream(broker.base_url, "GET", f"/v1/tasks/{task_id}/events", headers()) as stream:
        await stream.head()
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert (stream.headers["x-accel-buffering"], stream.headers["cache-control"]) == ("no", "no-cache")
        frames = opening(await stream.rest()).split(b"\n\n")
    assert frames.pop() == b"", "nothing after the last frame: the terminal one closes the stream"
    assert len(frames) == 6
    for seq, frame in enumerate(frames, 1):
        assert b"\r" not in frame
        id_line, event_line, data_line = frame.split(b"\n")
        data = json.loads(data_line.removeprefix(b"data: "))
        assert id_line == f"id: 1.{seq}".encode()
        assert event_line == f"event: {data['kind']}".encode()
        assert (data["seq"], data["covers"]) == (seq, [seq, seq])


@pytest.mark.parametrize("door", ["jsonrpc", "rest"])
async def test_an_a2a_stream_byte_by_byte(broker: BrokerProcess, door: str) -> None:
    body = json.dumps(
        {"message": say("go")}
        if door == "rest"
        else {"jsonrpc": "2.0", "id": "\u2028 7", "method": "SendStreamingMessage", "params": {"message": say("go")}}
    ).encode()
    path = "/agents/clerk/a2a/message:stream" if door == "rest" else "/agents/clerk/rpc"
    json_type = {"Content-Type": "application/json"}
    async with (
        RawStream(broker.base_url, "POST", path, headers() | json_type, body) as stream,
        LeaseWorker(broker.base_url, "clerk") as worker,
    ):
        await stream.head()
        await worker.write(await worker.lease_one(), status("COMPLETED"))
        frames = opening(await stream.rest()).replace(b": hb\n", b"").split(b"\n\n")
    assert frames.pop() == b""
    for frame, seq in zip(frames, (1, 3, 4), strict=True):
        id_line, data_line = frame.split(b"\n"), None
        assert id_line[0] == f"id: 1.{seq}".encode(), "hidden events have no frame; no event: name"
        data_line = id_line[1]
        data = json.loads(data_line.removeprefix(b"data: "))
        if door == "jsonrpc":
            assert (data["jsonrpc"], data["id"]) == ("2.0", "\u2028 7")
            data = data["result"]
        assert len(data) == 1


async def test_typescript_sdk_1925_line_separators_split_no_frame(broker: BrokerProcess) -> None:
    """And a2a-python#1078: all other non-ASCII is raw UTF-8."""
    task_id = await finished(broker, SEPARATORS)
    resume = {"A2A-Extensions": "https://waystation.dev/ext/resume/v1", "Last-Event-ID": "1.0"}
    for path, more in ((f"/v1/tasks/{task_id}/events", {}), (f"/agents/clerk/a2a/tasks/{task_id}:subscribe", resume)):
        async with RawStream(broker.base_url, "GET", path, headers() | more) as stream:
            await stream.head()
            raw = await stream.rest()
        assert "ü 漢 \U0001f600".encode() in raw
        texts = [found for data in splitlines_parser(raw.decode()) for found in artifact_texts(json.loads(data))]
        assert texts.count(SEPARATORS) >= 2
        assert set(texts) == {SEPARATORS}


def splitlines_parser(text: str) -> Iterator[str]:
    """A parser that takes every line end Unicode knows for one: the data of each event."""
    data: list[str] = []
    for line in text.splitlines():
        if line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif not line and data:
            yield "\n".join(data)
            data = []


def artifact_texts(event: Json) -> list[str]:
    """The text of each part of an artifact in the event, or in the Task that it carries."""
    artifacts = [event["artifactUpdate"]["artifact"]] if "artifactUpdate" in event else []
    artifacts += event.get("task", {}).get("artifacts", [])
    return [part["text"] for found in artifacts for part in found["parts"]]


async def test_scenario_6_heartbeats_are_comments_without_a_blank_line(broker: BrokerProcess) -> None:
    """a2a-python#545, kagent#907."""
    door = Door("rest", broker.base_url, "clerk", mint("a"))
    task = await door.send(say("go"), now=True)
    async with RawStream(broker.base_url, "GET", f"/v1/tasks/{task['id']}/events", headers()) as stream:
        await stream.head()
        await stream.until(b"\n\n")
        assert await stream.until(b": hb\n", 5) == b": hb\n"
        assert await stream.until(b": hb\n", 5) == b": hb\n"
        await door.cancel(task["id"])
        blocks = [block for block in (await stream.rest()).split(b"\n\n") if block]
    await door.http.aclose()
    (last,) = blocks
    lines = [line for line in last.split(b"\n") if not line.startswith(b":")]
    assert lines[0] == b"id: 1.2"


async def test_scenario_3_two_replicas_send_the_same_bytes(
    start_broker: Callable[..., BrokerProcess], broker: BrokerProcess
) -> None:
    other = start_broker(broker.database_url)
    task_id = await finished(broker, SEPARATORS)
    answers: list[bytes] = []
    for replica in (broker, other, broker):
        async with RawStream(
            replica.base_url, "GET", f"/v1/tasks/{task_id}/events", headers() | {"Last-Event-ID": "1.2"}
        ) as stream:
            await stream.head()
            answers.append(opening(await stream.rest()))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].count(b"\n\n") == 4
