"""The same calls on the event loop that ``waystation serve`` runs on: its transports differ in what they forgive."""

import asyncio
import ipaddress
from pathlib import Path

import pytest
import uvloop

from app.net.egress import Egress, EgressFailed, EgressPolicy
from tests.support.certificates import Authority
from tests.support.raw_server import raw_server

LOOPBACK = EgressPolicy(allow_cidrs=(ipaddress.ip_network("127.0.0.0/8"),))


async def resolve(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def calls(authority: Authority) -> None:
    egress = Egress(LOOPBACK, resolve=resolve, tls=authority.trusting())

    async def kind(url: str, timeout: float = 10) -> str:
        with pytest.raises(EgressFailed) as failure:
            await egress.request("GET", url, headers={}, timeout=timeout, read_all=True)
        return failure.value.kind

    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async def hang(_: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with raw_server(tls=authority.serving("good.example")) as server:
        for _ in range(3):
            answer = await egress.request("POST", f"https://good.example:{server.port}/", headers={}, content=b"x")
            assert (answer.status, answer.body) == (200, b"ok")
        assert (server.connections, server.names) == (1, ["good.example"])
        assert await kind(f"https://other.example:{server.port}/") == "tls"
    for tls, scheme in ((None, "http"), (authority.serving("good.example"), "https")):
        async with raw_server(flood, tls=tls) as server:
            url = f"{scheme}://good.example:{server.port}/"
            answer = await egress.request("GET", url, headers={}, max_bytes=1000)
            assert (answer.status, answer.truncated, len(answer.body)) == (200, True, 1000)
            assert await kind(url) == "too_large"
    async with raw_server(hang) as server:
        assert await kind(f"http://good.example:{server.port}/", timeout=0.5) == "timeout"
        assert await kind(f"https://good.example:{server.port}/", timeout=0.5) in {"timeout", "tls"}
    assert await kind(f"http://good.example:{server.port}/") == "connect"
    await egress.aclose()


def test_calls_on_uvloop(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(calls(Authority(tmp_path)))
