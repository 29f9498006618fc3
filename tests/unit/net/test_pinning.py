"""Connected is what was vetted: rebinding names, names kept for Host, SNI and certificate, connections used again."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from app.net import connections
from app.net.egress import Answer, Egress, EgressFailed, EgressPolicy, EgressRefused, OperatorPolicy
from tests.support.certificates import Authority
from tests.support.raw_server import OK, raw_server

INSIDE, OUTSIDE = "127.0.0.1", "127.0.0.2"
"""Two addresses of this machine: one stands for the private network, the other for the Internet."""
OUTSIDE_ONLY = EgressPolicy(allow_cidrs=(ipaddress.ip_network(f"{OUTSIDE}/32"),))
ANYWHERE_HERE = EgressPolicy(allow_cidrs=(ipaddress.ip_network("127.0.0.0/8"),))


class Names:
    """A resolver that gives these answers one after the other, the last for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class Caller:
    """Egresses that are closed after the test."""

    def __init__(self) -> None:
        self._made: list[Egress] = []

    def using(self, names: Names, policy: EgressPolicy = ANYWHERE_HERE, tls: ssl.SSLContext | None = None) -> Egress:
        self._made.append(Egress(policy, resolve=names, tls=tls))
        return self._made[-1]

    async def aclose(self) -> None:
        for egress in self._made:
            await egress.aclose()


@pytest_asyncio.fixture
async def caller() -> AsyncIterator[Caller]:
    caller = Caller()
    yield caller
    await caller.aclose()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def get(egress: Egress, url: str, timeout: float = 10) -> Answer:
    return await egress.request("GET", url, headers={}, timeout=timeout, read_all=True)


async def tls_failure(egress: Egress, url: str) -> EgressFailed:
    with pytest.raises(EgressFailed) as failure:
        await get(egress, url)
    assert failure.value.kind == "tls"
    assert "CERTIFICATE_VERIFY_FAILED" in failure.value.detail
    return failure.value


# Names that change their mind -----------------------------------------------------------------------------------------


async def test_a_name_is_resolved_once_and_that_address_is_called(caller: Caller) -> None:
    names = Names([OUTSIDE], [INSIDE])
    async with raw_server(host=OUTSIDE) as outside:
        answer = await get(caller.using(names, OUTSIDE_ONLY), f"http://rebinds.example:{outside.port}/")
    assert answer.body == b"ok"
    assert names.asked == ["rebinds.example"]
    assert outside.head["host"] == f"rebinds.example:{outside.port}"


async def test_every_call_vets_anew_although_a_connection_is_open(caller: Caller) -> None:
    egress = caller.using(Names([OUTSIDE], [INSIDE]), OUTSIDE_ONLY)
    async with raw_server(host=OUTSIDE) as outside:
        url = f"http://rebinds.example:{outside.port}/"
        await get(egress, url)
        with pytest.raises(EgressRefused):
            await get(egress, url)
        assert len(outside.requests) == 1


@pytest.mark.parametrize("addresses", [[OUTSIDE, INSIDE], [INSIDE, OUTSIDE], [OUTSIDE, "::1"], [OUTSIDE, "10.0.0.1"]])
async def test_one_bad_address_among_good_ones_is_enough(caller: Caller, addresses: list[str]) -> None:
    async with raw_server(host=OUTSIDE) as outside:
        with pytest.raises(EgressRefused):
            await get(caller.using(Names(addresses), OUTSIDE_ONLY), f"http://both.example:{outside.port}/")
        assert outside.connections == 0


async def test_an_address_is_called_without_a_look_at_any_name(caller: Caller) -> None:
    names = Names([INSIDE])
    async with raw_server(host=OUTSIDE) as outside:
        await get(caller.using(names, OUTSIDE_ONLY), f"http://{OUTSIDE}:{outside.port}/")
    assert names.asked == []


async def test_a_second_address_serves_when_the_first_does_not(caller: Caller) -> None:
    async with raw_server(host=OUTSIDE) as server:
        answer = await get(caller.using(Names([INSIDE, OUTSIDE])), f"http://two.example:{server.port}/")
    assert answer.status == 200


@pytest.mark.parametrize("found", [OSError(-2, "unknown"), UnicodeError("label too long"), []])
async def test_a_name_that_does_not_resolve(found: Exception | list[str]) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        if isinstance(found, Exception):
            raise found
        return found

    with pytest.raises(EgressFailed) as failure:
        await get(Egress(EgressPolicy(), resolve=resolve), "https://nowhere.example/")
    assert failure.value.kind == "dns"
    assert "nowhere" not in str(failure.value)
    assert "nowhere" in failure.value.detail


async def test_a_resolver_that_never_answers() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return await asyncio.get_running_loop().create_future()

    egress = Egress(EgressPolicy(), resolve=resolve)
    with pytest.raises(EgressFailed) as failure:
        await egress.request("GET", "https://slow.example/", headers={}, connect_timeout=0.1)
    assert failure.value.kind == "dns"
    await egress.vet("https://slow.example/", timeout=0.1)


async def test_the_systems_resolver() -> None:
    """What every machine can resolve, and what none can (RFC 6761, 6.4)."""
    both = EgressPolicy(allow_cidrs=(ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")))
    egress = Egress(both)
    async with raw_server() as server:
        assert (await get(egress, f"http://localhost:{server.port}/")).status == 200
    with pytest.raises(EgressFailed) as failure:
        await get(egress, "https://name.invalid/")
    assert failure.value.kind == "dns"
    await egress.aclose()


# TLS ------------------------------------------------------------------------------------------------------------------


async def test_sni_host_and_certificate_are_of_the_name(caller: Caller, authority: Authority) -> None:
    egress = caller.using(Names([INSIDE]), tls=authority.trusting())
    async with raw_server(tls=authority.serving("good.example")) as server:
        assert (await get(egress, f"https://good.example:{server.port}/")).body == b"ok"
        assert server.names == ["good.example"]
        assert server.head["host"] == f"good.example:{server.port}"
        await tls_failure(egress, f"https://other.example:{server.port}/")
        await tls_failure(egress, f"https://{INSIDE}:{server.port}/")
        assert len(server.requests) == 1


async def test_a_certificate_for_the_address_is_none_for_the_name(caller: Caller, authority: Authority) -> None:
    egress = caller.using(Names([INSIDE]), tls=authority.trusting())
    async with raw_server(tls=authority.serving(INSIDE)) as server:
        await tls_failure(egress, f"https://good.example:{server.port}/")
        assert (await get(egress, f"https://{INSIDE}:{server.port}/")).status == 200


async def test_certificates_nobody_vouches_for(caller: Caller, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "Stranger")
    trusting = caller.using(Names([INSIDE]), tls=authority.trusting())
    async with raw_server(tls=stranger.serving("good.example")) as server:
        failure = await tls_failure(trusting, f"https://good.example:{server.port}/")
        assert "good.example" not in str(failure)
        await tls_failure(caller.using(Names([INSIDE])), f"https://good.example:{server.port}/")
    async with raw_server(tls=authority.serving("good.example", expired=True)) as server:
        await tls_failure(trusting, f"https://good.example:{server.port}/")


async def test_no_tls_behind_https(caller: Caller, authority: Authority) -> None:
    async def plain(writer: asyncio.StreamWriter) -> None:
        raise AssertionError("it got a request in the clear")

    async with raw_server(plain) as server:
        with pytest.raises(EgressFailed):
            await get(caller.using(Names([INSIDE])), f"https://good.example:{server.port}/", timeout=0.5)
        assert server.requests == []


async def test_a_handshake_that_never_ends_is_closed(caller: Caller) -> None:
    closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        closed.set()
        writer.close()

    async with await asyncio.start_server(silent, INSIDE, 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(EgressFailed) as failure:
            await get(caller.using(Names([INSIDE])), f"https://good.example:{port}/", timeout=0.3)
        assert failure.value.kind == "timeout"
        await asyncio.wait_for(closed.wait(), 30)


# Connections used again -----------------------------------------------------------------------------------------------


async def test_calls_to_one_host_share_a_connection(caller: Caller, authority: Authority) -> None:
    egress = caller.using(Names([INSIDE]), tls=authority.trusting())
    async with raw_server(tls=authority.serving("good.example")) as server:
        for _ in range(5):
            await get(egress, f"https://good.example:{server.port}/")
        assert (server.connections, len(server.requests)) == (1, 5)


async def test_another_name_at_the_same_address_gets_a_connection_of_its_own(
    caller: Caller, authority: Authority
) -> None:
    egress = caller.using(Names([INSIDE]), tls=authority.trusting())
    async with raw_server(tls=authority.serving("one.example", "two.example")) as server:
        await get(egress, f"https://one.example:{server.port}/")
        await get(egress, f"https://two.example:{server.port}/")
        assert server.names == ["one.example", "two.example"]


async def test_a_name_that_has_moved_gets_a_connection_to_where_it_is(caller: Caller) -> None:
    async with raw_server(host=INSIDE) as before:
        egress = caller.using(Names([INSIDE], [OUTSIDE]))
        url = f"http://moves.example:{before.port}/"
        await get(egress, url)
        with pytest.raises(EgressFailed):
            await get(egress, url)  # nobody listens there
        assert len(before.requests) == 1


async def test_what_comes_unasked_is_no_answer(caller: Caller) -> None:
    egress, asked_again = caller.using(Names([INSIDE])), asyncio.Event()

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        await asked_again.wait()
        writer.write(b"HTTP/1.1 500 Unasked\r\nContent-Length: 0\r\n\r\n")

    async with raw_server(talk) as server:
        url = f"http://a.example:{server.port}/"
        assert (await get(egress, url)).status == 200
        (idle,) = egress._connections._idle
        asked_again.set()
        async with asyncio.timeout(30):
            while idle._wire.is_quiet:
                await asyncio.sleep(0.01)
        assert (await get(egress, url)).status == 200
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"],
)
async def test_a_connection_that_the_host_ends_is_not_used_again(caller: Caller, answer: bytes) -> None:
    egress = caller.using(Names([INSIDE]))
    async with raw_server(answer) as server:
        for _ in range(3):
            await get(egress, f"http://a.example:{server.port}/")
        assert server.connections == 3


async def test_an_answer_that_goes_on_after_its_end_spoils_no_other(caller: Caller) -> None:
    egress = caller.using(Names([INSIDE]))
    async with raw_server(OK + b"HTTP/1.1 500 Smuggled\r\nContent-Length: 0\r\n\r\n") as server:
        for _ in range(3):
            assert (await get(egress, f"http://a.example:{server.port}/")).status == 200
        assert server.connections == 3


async def test_a_connection_is_kept_for_a_moment_only(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEEP_ALIVE_SECONDS", 0.0)
    egress = caller.using(Names([INSIDE]))
    async with raw_server() as server:
        for _ in range(3):
            await get(egress, f"http://a.example:{server.port}/")
        assert server.connections == 3


async def test_calls_at_once(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a connection while it runs; of those that are idle afterwards a few are kept."""
    monkeypatch.setattr(connections, "MAX_IDLE", 4)
    egress = caller.using(Names([INSIDE]))
    everybody = asyncio.Event()

    async def together(writer: asyncio.StreamWriter) -> None:
        if len(server.requests) == 20:
            everybody.set()
        await everybody.wait()
        writer.write(OK)
        await writer.drain()

    async with raw_server(together) as server:
        url = f"http://a.example:{server.port}/"
        answers = await asyncio.gather(*(get(egress, url) for _ in range(20)))
        assert [answer.status for answer in answers] == [200] * 20
        assert server.connections == 20
        await asyncio.gather(*(get(egress, url) for _ in range(8)))
        assert server.connections == 24


async def test_the_operators_policy_calls_by_the_same_rules_of_tls(authority: Authority) -> None:
    egress = Egress(OperatorPolicy(), resolve=Names([INSIDE]), tls=authority.trusting())
    async with raw_server(tls=authority.serving("idp.example")) as server:
        assert (await get(egress, f"https://idp.example:{server.port}/")).status == 200
        await tls_failure(egress, f"https://other.example:{server.port}/")
    await egress.aclose()
