"""Names that are served slowly on purpose hold up nothing but lookups of their own kind, and not the event loop."""

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from app.net.egress import Egress, EgressFailed, EgressPolicy, OperatorPolicy
from app.net.names import LOOKUPS_AT_ONCE, Resolver
from app.webhooks.sender import PER_TENANT

PATIENCE = 30
ROOT = Path(__file__).parents[3]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Lookups of slow.example wait for it; all others are of this machine."""
    answered = threading.Event()

    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if host == "slow.example":
            answered.wait(PATIENCE)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield answered
    answered.set()


async def test_the_issuers_keys_do_not_wait_for_webhooks_names(slow: threading.Event) -> None:
    webhooks, keys = Egress(EgressPolicy()), Egress(OperatorPolicy())
    vetted = [
        asyncio.create_task(webhooks.vet("https://slow.example/", timeout=PATIENCE)) for _ in range(LOOKUPS_AT_ONCE)
    ]
    await asyncio.wait_for(keys.vet("https://idp.example/", timeout=PATIENCE), PATIENCE / 2)
    assert not any(call.done() for call in vetted)
    slow.set()
    await asyncio.gather(*vetted)


async def test_one_tenants_names_leave_threads_for_those_of_others(slow: threading.Event) -> None:
    egress = Egress(EgressPolicy())
    vetted = [asyncio.create_task(egress.vet("https://slow.example/", timeout=PATIENCE)) for _ in range(2 * PER_TENANT)]
    await asyncio.wait_for(egress.vet("https://other.example/", timeout=PATIENCE), PATIENCE / 2)
    assert not any(call.done() for call in vetted)
    slow.set()
    await asyncio.gather(*vetted)


async def test_a_process_ends_although_a_lookup_does_not() -> None:
    program = """
import asyncio, socket, threading
from app.net.egress import Egress, EgressFailed, EgressPolicy
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
asyncio.run(Egress(EgressPolicy()).vet("https://slow.example/", timeout=0.1))
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=ROOT)
    try:
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_name_that_cannot_be_written_for_the_resolver_is_one_that_does_not_resolve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look_up(*_: object, **__: object) -> NoReturn:
        raise UnicodeError("label too long")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(EgressFailed) as failure:
        await Egress(EgressPolicy()).request("GET", "https://odd.example/", headers={})
    assert failure.value.kind == "dns"


async def test_a_machine_without_room_for_a_thread_loses_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    resolver = Resolver()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(LOOKUPS_AT_ONCE):
            with pytest.raises(OSError, match="no thread"):
                await resolver("localhost", 443)
    assert await asyncio.wait_for(resolver("localhost", 443), PATIENCE)
