"""What is sent and what comes back: real servers, orderly and otherwise, on an allowed loopback."""

import asyncio
import ipaddress
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from app import metrics
from app.net.connections import MAX_PIECES
from app.net.egress import Answer, Egress, EgressFailed, EgressPolicy, EgressRefused
from tests.support.raw_server import OK, raw_server

LOOPBACK = EgressPolicy(allow_cidrs=(ipaddress.ip_network("127.0.0.0/8"),))
PATIENCE = 30
"""Seconds after which a test that should have ended by itself fails."""


@pytest_asyncio.fixture
async def egress() -> AsyncIterator[Egress]:
    egress = Egress(LOOPBACK)
    yield egress
    await egress.aclose()


async def get(
    egress: Egress, port: int, *, max_bytes: int = 1000, timeout: float = 10, read_all: bool = False
) -> Answer:
    call = egress.request(
        "GET", f"http://127.0.0.1:{port}/x", headers={}, max_bytes=max_bytes, timeout=timeout, read_all=read_all
    )
    return await asyncio.wait_for(call, PATIENCE)


async def kind_of_failure(egress: Egress, port: int, *, timeout: float = 10, read_all: bool = True) -> str:
    with pytest.raises(EgressFailed) as failure:
        await get(egress, port, timeout=timeout, read_all=read_all)
    assert "127.0.0.1" not in str(failure.value)
    return failure.value.kind


async def test_a_whole_exchange(egress: Egress) -> None:
    async with raw_server(b"HTTP/1.1 202 X\r\nX-Thing: 1\r\nContent-Length: 2\r\n\r\n\x00\xff") as server:
        url = f"http://127.0.0.1:{server.port}/a/b?c=d"
        answer = await egress.request("POST", url, headers={"Content-Type": "text/plain"}, content=b"body\r\n")
    assert (answer.status, answer.body, answer.headers["x-thing"], answer.truncated) == (202, b"\x00\xff", "1", False)
    assert server.requests[0].startswith(b"POST /a/b?c=d HTTP/1.1\r\n")
    assert server.requests[0].endswith(b"\r\n\r\nbody\r\n")
    assert server.head == {
        "host": f"127.0.0.1:{server.port}",
        "accept-encoding": "identity",
        "content-type": "text/plain",
        "content-length": "6",
    }


async def test_an_empty_post_says_so(egress: Egress) -> None:
    async with raw_server() as server:
        await egress.request("POST", f"http://127.0.0.1:{server.port}/", headers={})
    assert server.head["content-length"] == "0"


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nY: b"},
        {"X": "a\nb"},
        {"X": "a\rb"},
        {"X": "a\x00b"},
        {"X": "a\x7fb"},
        {"X": "é"},
        {"X\r\nY": "a"},
        {"X Y": "a"},
        {"X:": "a"},
        {"": "a"},
        {"é": "a"},
        {"Host": "example.com"},
        {"host": "example.com"},
        {"Content-Length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "close"},
        {"Accept-Encoding": "gzip"},
        {"Expect": "100-continue"},
    ],
)
async def test_headers_that_are_not_sent(egress: Egress, headers: Mapping[str, str]) -> None:
    async with raw_server() as server:
        with pytest.raises(EgressRefused):
            await egress.request("POST", f"http://127.0.0.1:{server.port}/", headers=headers)
        assert server.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_answers(egress: Egress, status: int) -> None:
    async with raw_server() as elsewhere:
        location = f"http://127.0.0.1:{elsewhere.port}/"
        say = f"HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
        async with raw_server(say) as server:
            answer = await get(egress, server.port)
        assert (answer.status, answer.headers["location"]) == (status, location)
        assert elsewhere.connections == 0


async def test_the_environment_is_not_asked(egress: Egress, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with raw_server() as proxy, raw_server() as server:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        await get(egress, server.port)
        assert proxy.connections == 0
    assert "authorization" not in server.head


async def test_compression_is_not_undone(egress: Egress) -> None:
    async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nzzz") as server:
        assert (await get(egress, server.port, read_all=True)).body == b"zzz"


@pytest.mark.parametrize("size", [0, 999, 1000])
@pytest.mark.parametrize("read_all", [True, False])
async def test_answers_up_to_the_limit_are_whole(egress: Egress, size: int, *, read_all: bool) -> None:
    async with raw_server(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{'x' * size}".encode()) as server:
        answer = await get(egress, server.port, read_all=read_all)
    assert (len(answer.body), answer.truncated) == (size, False)


async def test_of_megabytes_the_beginning_is_read(egress: Egress) -> None:
    sent = 0
    closed = asyncio.Event()

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536
        finally:
            closed.set()

    async with raw_server(flood) as server:
        answer = await get(egress, server.port)
        assert (answer.status, answer.body, answer.truncated) == (200, b"x" * 1000, True)
        await asyncio.wait_for(closed.wait(), PATIENCE)
        assert await kind_of_failure(egress, server.port) == "too_large"


@pytest.mark.parametrize(
    "say",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"1;" + b"e" * 4000 + b"\r\nx\r\n") * 1000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 200_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 4_000_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 400_000,
    ],
)
async def test_what_stands_beside_the_body_is_bounded_too(egress: Egress, say: bytes) -> None:
    async with raw_server(say) as server:
        assert await kind_of_failure(egress, server.port) == "protocol"


async def test_an_answer_in_very_many_pieces_is_cut(egress: Egress) -> None:
    """In the parser they cost a hundred times what their bytes would: a loop over all of them stops the process."""
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 2000 + b"0\r\n\r\n"
    async with raw_server(chunks) as server:
        answer = await get(egress, server.port, max_bytes=10_000)
        assert (answer.status, answer.body, answer.truncated) == (200, b"x" * MAX_PIECES, True)
        with pytest.raises(EgressFailed, match="cut short"):
            await get(egress, server.port, max_bytes=10_000, read_all=True)
    async with raw_server(b"HTTP/1.1 103 \r\n\r\n" * (MAX_PIECES + 1) + OK) as server:
        assert await kind_of_failure(egress, server.port) == "protocol"
    async with raw_server(b"HTTP/1.1 200 OK\r\n" + b"X: \r\n" * 8000 + b"Content-Length: 0\r\n\r\n") as server:
        assert await kind_of_failure(egress, server.port) == "protocol"


@pytest.mark.parametrize(
    "say",
    [
        b"SSH-2.0-OpenSSH_9.0\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx",
    ],
)
async def test_answers_that_are_none(egress: Egress, say: bytes) -> None:
    async def once(writer: asyncio.StreamWriter) -> None:
        writer.write(say)
        await writer.drain()
        raise ConnectionError

    async with raw_server(once) as server:
        assert await kind_of_failure(egress, server.port) == "protocol"


async def test_a_reset(egress: Egress) -> None:
    async def reset(writer: asyncio.StreamWriter) -> None:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        raise ConnectionError

    async with raw_server(reset) as server:
        assert await kind_of_failure(egress, server.port) == "closed"


async def test_a_connection_closed_without_a_word(egress: Egress) -> None:
    async def close(_: asyncio.StreamWriter) -> None:
        raise ConnectionError

    async with raw_server(close) as server:
        assert await kind_of_failure(egress, server.port) == "closed"


async def test_nobody_listens(egress: Egress) -> None:
    async with raw_server() as server:
        port = server.port
    assert await kind_of_failure(egress, port) == "connect"


async def test_a_host_that_never_answers(egress: Egress) -> None:
    async def hang(_: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with raw_server(hang) as server:
        assert await kind_of_failure(egress, server.port, timeout=0.3, read_all=False) == "timeout"


async def test_a_slow_drip_ends_with_the_one_time_limit(egress: Egress) -> None:
    """A host that sends a byte now and then never meets a time limit that is per read."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"z" * 10_000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    async with raw_server(drip) as server:
        assert await kind_of_failure(egress, server.port, timeout=0.5, read_all=False) == "timeout"


async def test_a_status_is_an_answer_whatever_becomes_of_the_body(egress: Egress) -> None:
    """A receiver that has said 200 has the notification: sending it again would be of no use to anybody."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def cut(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nx")
        await writer.drain()
        raise ConnectionError

    for say, timeout, kind in ((drip, 2, "timeout"), (cut, 10, "protocol")):
        async with raw_server(say) as server:
            answer = await get(egress, server.port, timeout=timeout)
            assert (answer.status, answer.truncated) == (200, True)
            assert set(answer.body) == {ord("x")}
            assert await kind_of_failure(egress, server.port, timeout=timeout) == kind


async def test_a_cancelled_call_closes_its_connection(egress: Egress) -> None:
    closed = asyncio.Event()

    async def drip(writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            closed.set()

    async with raw_server(drip) as server:
        call = asyncio.create_task(get(egress, server.port))
        await asyncio.wait_for(server.asked.wait(), PATIENCE)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(closed.wait(), PATIENCE)


async def test_calls_are_counted_by_purpose_and_outcome(egress: Egress) -> None:
    def count(outcome: str) -> float:
        return metrics.OUTBOUND_CALLS.labels("card", outcome)._value.get()

    async def call(url: str) -> None:
        await egress.request("GET", url, headers={}, purpose="card")

    before = {outcome: count(outcome) for outcome in ("2xx", "5xx", "refused", "connect")}
    async with raw_server(OK) as server:
        await call(f"http://127.0.0.1:{server.port}/")
    async with raw_server(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n") as server:
        await call(f"http://127.0.0.1:{server.port}/")
    await egress.aclose()
    with pytest.raises(EgressFailed):
        await call(f"http://127.0.0.1:{server.port}/")
    with pytest.raises(EgressRefused):
        await call("http://10.0.0.1/")
    assert {outcome: count(outcome) - before[outcome] for outcome in before} == dict.fromkeys(before, 1)
