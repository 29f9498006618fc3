"""Limits on the wire that no handler sees (security.md, Input limits): heads in time and size, bodies, odd bytes."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.transports.http_protocol import HEAD_SECONDS, STALL_SECONDS, AddressLimit
from tests.support.broker import BrokerProcess
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import mint

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def server(
    postgres_server: SharedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    name = run_sync(postgres_server.create_database(template_database))
    log: Path = tmp_path_factory.mktemp("broker") / "log"
    broker = BrokerProcess(postgres_server.dsn(name), log)
    broker.start()
    broker.register_agent("x")
    yield broker
    broker.close()
    print(broker.output())
    run_sync(postgres_server.drop_database(name))


async def talk(server: BrokerProcess, *pieces: bytes, seconds: float = 10) -> bytes:
    """Send the pieces and read until the server closes; what it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(seconds):
            return await reader.read()
    finally:
        writer.transport.abort()


def head(method: str = "GET", path: str = "/livez", *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


CLOSE = "Connection: close"
ADMIN = f"Authorization: Bearer {mint('a', scope='agents:admin')}"
BEARER = f"Authorization: Bearer {mint('a')}"


async def test_half_sent_heads_and_silent_connections_are_closed(server: BrokerProcess) -> None:
    """500 of them, in at most 12 s, while others are served."""
    started = time.monotonic()
    kinds = [b"", b"GET /livez HT", head()[:-2]]

    async def half_open(number: int) -> float:
        assert await talk(server, kinds[number % 3], seconds=30) == b""
        return time.monotonic() - started

    halves = [asyncio.create_task(half_open(number)) for number in range(500)]
    await asyncio.sleep(1)
    assert b" 200 " in await talk(server, head("GET", "/livez", CLOSE))
    took = await asyncio.gather(*halves)
    assert min(took) > HEAD_SECONDS - 1
    assert max(took) < HEAD_SECONDS + 5


async def test_a_connection_that_served_a_request_may_idle_longer(server: BrokerProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head())
    await reader.readuntil(b'{"status":"ok"}')
    await asyncio.sleep(HEAD_SECONDS + 1)
    writer.write(head("GET", "/livez", CLOSE))
    assert b" 200 " in await reader.read()
    writer.close()


async def test_large_heads_are_431(server: BrokerProcess) -> None:
    for lines in (
        [f"X-Large: {'a' * 17 * 1024}"],
        [f"X-{number}: a" for number in range(101)],
        [f"X-Huge: {'a' * 300 * 1024}"],
        [f"X-Huge: {'a' * 5 * MIB}"],
    ):
        answer = await talk(server, head("GET", "/livez", *lines))
        assert answer.startswith(b"HTTP/1.1 431 "), answer[:200]
        assert b"HEADERS_TOO_LARGE" in answer
    endless = [head()[:-2], *[b"X-More: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 20] * 50]
    assert (await talk(server, *endless)).startswith(b"HTTP/1.1 431 ")


async def test_an_oversized_body_is_413_for_a_client_that_sends_it_all(server: BrokerProcess) -> None:
    body = b'{"message":"' + b"x" * (5 * MIB) + b'"}'
    request = head(
        "POST", "/agents/x/a2a/message:send", BEARER, "A2A-Version: 1.0", "Content-Type: application/json",
        f"Content-Length: {len(body)}", CLOSE,
    )  # fmt: skip
    answer = await talk(server, request, body)
    assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]
    chunked = head(
        "POST", "/agents/x/a2a/message:send", BEARER, "A2A-Version: 1.0", "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    )  # fmt: skip
    chunk = b"%x\r\n" % MIB + b"x" * MIB + b"\r\n"
    answer = await talk(server, chunked, *[chunk] * 5, b"0\r\n\r\n" + head("GET", "/livez", CLOSE))
    assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]
    assert b'{"status":"ok"}' in answer, "the connection goes on"


async def test_a_refused_body_that_never_ends_is_cut(server: BrokerProcess) -> None:
    request = head(
        "POST", "/agents/x/a2a/message:send", "Content-Type: application/json", f"Content-Length: {1024 * MIB}"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")
    started = time.monotonic()
    try:
        async with asyncio.timeout(30):
            while True:
                writer.write(b"x" * 1024)
                await writer.drain()
                await asyncio.sleep(0.05)
    except ConnectionError:
        pass
    assert time.monotonic() - started < 20
    writer.transport.abort()


async def test_a_peer_that_takes_nothing_of_its_answer_is_cut_off_and_a_slow_one_is_not(server: BrokerProcess) -> None:
    """Answers that nobody takes are memory, for as long as the connection stands."""
    count = 1 + 40 * MIB // len(await talk(server, head("GET", "/openapi.json", CLOSE)))
    requests = head("GET", "/openapi.json") * count + head("GET", "/livez", CLOSE)

    async def ask(pause: float) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(requests)
        answer = b""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            for _ in range(2):
                await asyncio.sleep(pause)
                answer += await reader.readexactly(16 * MIB)
            answer += await reader.read()
        writer.transport.abort()
        return answer

    stalled, slow = await asyncio.gather(ask(STALL_SECONDS + 5), ask(STALL_SECONDS - 5))
    assert not stalled.endswith(b'{"status":"ok"}')
    assert slow.endswith(b'{"status":"ok"}')


async def test_encodings_and_media_types(server: BrokerProcess) -> None:
    for lines, code in (
        (["Content-Type: application/json", "Content-Encoding: gzip"], 415),
        (["Content-Type: text/plain"], 400),
        ([], 400),
        (["Content-Type: application/json; charset=latin-1"], 400),
    ):
        request = head("PUT", "/v1/agents/y", ADMIN, "Content-Length: 2", CLOSE, *lines)
        answer = await talk(server, request + b"{}")
        assert int(answer.split()[1]) == code, answer[:200]


async def test_garbage_is_400_and_never_5xx(server: BrokerProcess) -> None:
    for garbage in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\nnonsense\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ):
        answer = await talk(server, garbage, seconds=15)
        assert answer == b"" or 400 <= int(answer.split()[1]) < 500, answer[:200]


async def test_unknown_paths_and_redirects(server: BrokerProcess) -> None:
    for path in (
        "/",
        "/v1",
        "/v1/agents/",
        "/agents/x/a2a/tasks/",
        "//livez",
        "/livez/",
        "/%2e%2e/etc/passwd",
        "/v1/leases",
    ):
        answer = await talk(server, head("GET", path, CLOSE, BEARER))
        assert answer.startswith(b"HTTP/1.1 404 "), (path, answer[:100])


async def test_upgrades_are_ignored(server: BrokerProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head("GET", "/livez", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"))
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b'{"status":"ok"}')).startswith(b"HTTP/1.1 200 ")
    writer.transport.abort()


@pytest.mark.parametrize("framing", ["Content-Length: 2", "Transfer-Encoding: chunked"])
async def test_uvicorn_2722_the_body_of_a_request_that_asks_for_h2c_arrives(
    server: BrokerProcess, framing: str
) -> None:
    """Java's HttpClient asks for h2c with its first request."""
    ask = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    body = b"{}" if "Length" in framing else b"2\r\n{}\r\n0\r\n\r\n"
    last = head("GET", "/livez", CLOSE)
    for lines, violation in (([], b"card: is required"), (["Content-Length: 0"], b"The body must be an object")):
        request = head("PUT", "/v1/agents/y", ADMIN, "Content-Type: application/json", *(lines or [framing]), *ask)
        whole = request + (b"" if lines else body) + last
        for pieces in (
            [whole],
            [request, whole[len(request) :]],
            [whole[at : at + 7] for at in range(0, len(whole), 7)],
        ):
            answer = await talk(server, *pieces)
            assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
            assert violation in answer, answer
            assert answer.count(b"HTTP/1.1 ") == 2, "nothing of the body is read as a request"
            assert answer.endswith(b'{"status":"ok"}'), "the connection goes on"


async def test_what_asks_to_leave_http_is_400_or_ignored(server: BrokerProcess) -> None:
    assert (await talk(server, b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    ask = head("GET", "/livez", "Connection: Upgrade", "Upgrade: h2c")
    answer = await talk(server, ask * 20 + head("GET", "/livez", CLOSE))
    assert answer.count(b'{"status":"ok"}') == 21


def test_connections_per_address() -> None:
    limit = AddressLimit(["10.1.0.0/16"], most=2)
    assert limit.enter("192.0.2.1")
    assert limit.enter("192.0.2.1")
    assert not limit.enter("192.0.2.1")
    assert limit.enter("192.0.2.2")
    limit.leave("192.0.2.1")
    assert limit.enter("192.0.2.1")
    for exempt in ("127.0.0.1", "::1", "10.1.2.3", "", "unix"):
        assert all(limit.enter(exempt) for _ in range(10))
