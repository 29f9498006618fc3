"""Fetching: what is answered, what is refused, and that nothing of the environment or of the answer leads elsewhere."""

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from app.net.egress import FetchFailed, check_url, fetch_bytes
from tests.support.oidc import Answer, OidcServer, ec_key


async def fetch(url: str, *, max_bytes: int = 1000, timeout: float = 5, allow_http_loopback: bool = True) -> bytes:
    answer = await fetch_bytes(url, max_bytes=max_bytes, timeout=timeout, allow_http_loopback=allow_http_loopback)
    return answer.body


async def test_body_and_headers(idp: OidcServer) -> None:
    idp.overrides["/x"] = Answer(b"\x00\xff", headers=("X-Thing: 1",))
    answer = await fetch_bytes(f"{idp.issuer}/x", max_bytes=2, timeout=5, allow_http_loopback=True)
    assert (answer.body, answer.headers["x-thing"]) == (b"\x00\xff", "1")


async def test_the_environment_is_not_asked(
    idp: OidcServer, other_idp: OidcServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, other_idp.issuer)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    idp.overrides["/x"] = Answer(b"direct")
    assert await fetch(f"{idp.issuer}/x") == b"direct"
    assert not other_idp.requests


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b"x" * 1001),
        Answer(b"x" * 1001, headers=("Content-Length: 5",)),
        Answer(b"x", 204),
        Answer(b"x", 304),
        Answer(b"", 302, ("Location: /elsewhere",)),
        Answer(b"x", 503),
        Answer(b"x", headers=("Content-Encoding: br",)),
        Answer(b"zzz", headers=("Transfer-Encoding: chunked",)),
    ],
)
async def test_answers_that_are_none(idp: OidcServer, answer: Answer) -> None:
    idp.overrides["/x"] = answer
    with pytest.raises(FetchFailed):
        await fetch(f"{idp.issuer}/x")
    assert idp.requests == {"/x": 1}


async def test_the_time_limit_is_for_all_of_it() -> None:
    """A server that sends a byte now and then never times out by the library's own limits, which are per read."""
    release = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while not release.is_set():
                writer.write(b"x")
                await writer.drain()
                await asyncio.wait([asyncio.create_task(release.wait())], timeout=0.05)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(FetchFailed, match="TimeoutError"):
            await asyncio.wait_for(fetch(f"http://127.0.0.1:{port}/", max_bytes=100_000, timeout=0.3), 10)
        release.set()


async def test_nobody_listens(idp: OidcServer) -> None:
    await idp.down()
    with pytest.raises(FetchFailed, match="ConnectError"):
        await fetch(f"{idp.issuer}/x")


async def test_a_certificate_nobody_vouches_for(tmp_path: Path) -> None:
    key, name = ec_key("tls"), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "server.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    reached = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(FetchFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await fetch(f"https://localhost:{port}/")
    assert not reached.is_set()


@pytest.mark.parametrize("url", ["https://idp.example.com", "https://idp.example.com:8443/a/b?c=d", "https://[::1]/"])
def test_good_urls(url: str) -> None:
    check_url(url, allow_http_loopback=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9:81", "[::1]:81", "localhost:81"])
def test_http_is_for_this_machine_and_only_if_allowed(host: str) -> None:
    check_url(f"http://{host}/", allow_http_loopback=True)
    with pytest.raises(FetchFailed, match="https is required"):
        check_url(f"http://{host}/", allow_http_loopback=False)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "http://192.168.0.1/",
        "http://0.0.0.0/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:127.0.0.1]/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://localhost.example.com/",
        "http://127.0.0.1.example.com/",
        "http://user@127.0.0.1/",
        "https://user:password@example.com/",
        "https://example.com/#fragment",
        "//example.com/",
        "/path",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "https:///path",
        "https://example.com:port/",
        "https://exa\x00mple.com/",
        "https://exa\r\nmple.com/",
        "",
    ],
)
async def test_refused_urls(url: str) -> None:
    with pytest.raises(FetchFailed):
        check_url(url, allow_http_loopback=True)
    with pytest.raises(FetchFailed):
        await fetch(url)
