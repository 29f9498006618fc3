"""Bad input over gRPC: a clear status, never INTERNAL or UNKNOWN; the broker goes on (security.md, Input limits)."""

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb

from tests.contract.doors import DoorError, say
from tests.contract.grpc_door import GrpcDoor
from tests.integration.grpc.conftest import At

BROKER_ENVIRONMENT = {"WAYSTATION_MAX_BODY_BYTES": "200000"}
METHODS = ("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask")


async def refused(at: At, operation: str, raw: bytes, **headers: str) -> DoorError:
    door = at.door()
    door.message = lambda *_: raw
    with pytest.raises(DoorError) as caught:
        async with door.open(operation, {}, **headers):
            pass
    assert caught.value.response.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await at.door().list())["totalSize"] == 0, "nothing was stored, and the broker lives"
    return caught.value


@pytest.mark.parametrize("operation", METHODS)
@pytest.mark.parametrize(
    "raw", [b"\xff\xff\xff\xff", b"\x0a\xff\x01", b"\x0a\x02\xc3\x28", b"\x0a\x7f", b"{}", bytes(50)], ids=range(6)
)
async def test_garbage_and_text_that_is_not_utf8(at: At, operation: str, raw: bytes) -> None:
    assert (await refused(at, operation, raw)).reason == "PARSE_ERROR"


def request(at: At, change: Callable[[Any], object]) -> bytes:
    """A SendMessage request in which ``change`` has changed something."""
    part = pb.Part(text="hi")
    message = pb.Message(message_id="m1", role=pb.ROLE_USER, parts=[part])
    whole = pb.SendMessageRequest(tenant=at.agent, message=message)
    change(whole)
    return whole.SerializeToString()


def _number(value: float) -> Callable[[Any], object]:
    def change(whole: Any) -> None:
        whole.message.parts[0].data.struct_value.fields["x"].number_value = value

    return change


def _set(path: str, value: Any) -> Callable[[Any], object]:
    def change(whole: Any) -> None:
        *parents, name = path.split(".")
        for parent in parents:
            whole = getattr(whole, parent)
        setattr(whole, name, value)

    return change


@pytest.mark.parametrize(
    "change",
    [_number(float("nan")), _number(float("inf")), _number(float("-inf")), _set("message.message_id", "a\x00b")],
)
async def test_nan_infinities_and_nul_are_refused_as_the_json_loader_does(at: At, change: Any) -> None:
    assert (await refused(at, "SendMessage", request(at, change))).reason == "PARSE_ERROR"


async def test_nul_in_a_key_and_in_the_routing_key(at: At) -> None:
    def key(whole: Any) -> None:
        whole.message.metadata.fields["a\x00"].bool_value = True

    assert (await refused(at, "SendMessage", request(at, key))).reason == "PARSE_ERROR"
    assert (await refused(at, "GetTask", pb.GetTaskRequest(tenant="a\x00", id="x").SerializeToString())).reason


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_set("message.role", 99), "message.role"),
        (_set("message.role", 0), "message.role"),
        (_set("message.message_id", "m" * 257), "message.messageId"),
        (_set("message.message_id", ""), "message.messageId"),
        (_set("configuration.history_length", -1), "configuration.historyLength"),
    ],
)
async def test_values_that_the_models_refuse(at: At, change: Any, field: str) -> None:
    error = await refused(at, "SendMessage", request(at, change))
    assert error.reason == "INVALID_PARAMS"
    assert field in str(error)


async def test_times_that_are_none(at: At) -> None:
    for seconds, nanos in ((10**17, 0), (0, -5), (0, 2 * 10**9), (-(10**17), 0)):
        filters = pb.ListTasksRequest(tenant=at.agent)
        filters.status_timestamp_after.seconds, filters.status_timestamp_after.nanos = seconds, nanos
        assert (await refused(at, "ListTasks", filters.SerializeToString())).reason == "PARSE_ERROR"


@pytest.mark.parametrize("levels", [33, 100, 5000])
async def test_deep_nesting_is_refused(at: At, levels: int) -> None:
    """protobuf's own limit is 100 messages: 32 objects or 48 lists within a part, fewer than JSON's 64."""
    value = b"\x08\x00"  # null
    for _ in range(levels):
        entry = _field(1, b"a") + _field(2, value)
        value = _field(5, _field(1, entry))  # Value.struct_value.fields
    part = _field(4, value)
    message = _field(1, b"m1") + b"\x20\x01" + _field(5, part)
    raw = _field(1, at.agent.encode()) + _field(2, message)
    assert (await refused(at, "SendMessage", raw)).reason == "PARSE_ERROR"


async def test_content_that_grpc_cannot_carry_is_told_and_read_elsewhere(at: At) -> None:
    deep: Any = 1
    for _ in range(55):
        deep = {"a": deep}
    task = await at.rest().send(say("x") | {"parts": [{"data": deep}]}, now=True)
    with pytest.raises(DoorError, match=r"UNSUPPORTED_OPERATION.*HTTP\+JSON"):
        await at.door().get(task["id"])
    assert (await at.rest().get(task["id"]))["history"][0]["parts"] == [{"data": deep}]


async def test_unknown_fields_are_ignored(at: At) -> None:
    raw = request(at, lambda _: None) + _field(1000, b"later version") + b"\xb8\x3e\x07"
    door = at.door()
    door.message = lambda *_: raw
    async with door.open("SendStreamingMessage", {}) as stream:
        task = (await stream.next() or {})["task"]
    assert b"later" not in json.dumps(task).encode()


async def test_a2a_python_473_too_large_a_message_is_resource_exhausted(at: At) -> None:
    """By gRPC itself, before it is read; one byte less passes."""
    door = at.door()
    with pytest.raises(DoorError, match="PAYLOAD_TOO_LARGE"):
        await door.send(say("x" * 200_000), now=True)
    overhead = len(door.message("SendMessage", {"message": say("")}))
    assert await door.send(say("x" * (199_000 - overhead)), now=True)


async def test_no_message_and_two(at: At) -> None:
    path, metadata = "/lf.a2a.v1.A2AService/ListTasks", tuple(at.door().metadata.items())
    channel = at.door().channel
    call = channel.stream_unary(path)(metadata=metadata)
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    call = channel.stream_unary(path)(metadata=metadata)
    raw = pb.ListTasksRequest(tenant=at.agent).SerializeToString()
    await call.write(raw)
    await call.write(raw)
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


async def test_huge_metadata_is_refused(at: At) -> None:
    door = at.door()
    call = door.channel.unary_unary("/lf.a2a.v1.A2AService/ListTasks")
    for size in (17_000, 100_000):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", metadata=(*door.metadata.items(), ("x", "x" * size)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    for size in (257, 5000):
        with pytest.raises(DoorError, match="INVALID_ARGUMENT"):
            await door.send(say("x"), now=True, headers={"idempotency-key": "k" * size})
    assert (await door.list())["totalSize"] == 0


async def test_compressed_messages_are_unimplemented(at: At) -> None:
    """As Content-Encoding is 415 on the HTTP doors: no bombs."""
    bomb = GrpcDoor(at.broker.grpc_target, at.agent, "", options=[("grpc.default_compression_algorithm", 2)])
    bomb.metadata = at.door().metadata
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await bomb.channel.unary_unary("/lf.a2a.v1.A2AService/ListTasks")(
            b"\x00" * 10_000_000, metadata=tuple(bomb.metadata.items())
        )
    assert caught.value.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED)
    await bomb.aclose()
    assert (await at.door().list())["totalSize"] == 0


async def test_bytes_that_are_not_http2(at: At) -> None:
    host, port = at.broker.grpc_target.split(":")
    for sent in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(range(256)) * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 99,
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        async with asyncio.timeout(20):
            while await reader.read(1000):
                pass
        writer.close()
    assert (await at.door().list())["totalSize"] == 0


async def test_nul_in_metadata_is_refused(at: At) -> None:
    """gRPC's own clients refuse to send it, its server passes it on: frames by hand (RFC 9113)."""
    host, port = at.broker.grpc_target.split(":")
    metadata = {name: value.encode() for name, value in at.door().metadata.items()} | {"idempotency-key": b"a\x00b"}
    headers = {
        ":method": b"POST", ":scheme": b"http", ":path": b"/lf.a2a.v1.A2AService/SendMessage", ":authority": b"x",
        "content-type": b"application/grpc", "te": b"trailers", **metadata,
    }  # fmt: skip
    block = b"".join(b"\x00" + _text(name.encode()) + _text(value) for name, value in headers.items())
    message = request(at, lambda _: None)
    frames = (
        _frame(4, 0, 0, b""),
        _frame(1, 4, 1, block),
        _frame(0, 1, 1, struct.pack(">BI", 0, len(message)) + message),
    )
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"".join(frames))
    async with asyncio.timeout(20):
        await reader.readuntil(b"Idempotency-Key holds U+0000")
    writer.close()
    assert (await at.door().list())["totalSize"] == 0


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def _text(value: bytes) -> bytes:
    """A literal of HPACK without Huffman coding (RFC 7541, 5.2)."""
    if len(value) < 0x7F:
        return bytes([len(value)]) + value
    return b"\x7f" + _varint(len(value) - 0x7F) + value


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])
