"""The life cycle of an issuer's keys, against a real HTTP server and with a clock that the test moves."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from app.auth import keys as keys_module
from app.auth.jwks import VerificationKey
from app.auth.keys import KeyStore
from app.errors import Unavailable
from app.settings import IssuerSettings
from tests.support.oidc import DISCOVERY, JWKS, Answer, OidcServer, ec_jwk, rsa_jwk


@dataclass
class Subject:
    """A key store for one issuer; ``now`` is its clock."""

    idp: OidcServer
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.store = self.store_for(issuer=self.idp.issuer)

    def store_for(self, **settings: str) -> KeyStore:
        given = {"audience": "x", "tenantRule": "constant:a", "tenants": ["a"]}
        issuer = IssuerSettings.model_validate(given | settings)
        return KeyStore([issuer], clock=lambda: self.now)

    async def find(self, kid: str = "rsa") -> VerificationKey | None:
        return await self.store.find(self.idp.issuer, kid)

    @property
    def fetches(self) -> int:
        return self.idp.requests[JWKS]

    async def fetched(self, count: int) -> None:
        """Wait until the issuer has seen ``count`` requests for its keys, and the store has its answer."""
        async with asyncio.timeout(10):
            while self.fetches < count:
                self.idp.seen.clear()
                await self.idp.seen.wait()
            while any(task.get_name().startswith("jwks ") for task in asyncio.all_tasks()):
                await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name().startswith("jwks ")])


@pytest_asyncio.fixture
async def subject(idp: OidcServer) -> AsyncIterator[Subject]:
    subject = Subject(idp)
    yield subject
    await subject.store.aclose()


# Fresh keys -----------------------------------------------------------------------------------------------------------


async def test_discovery_then_the_keys_once(subject: Subject) -> None:
    rsa, ec = await subject.find("rsa"), await subject.find("ec")
    assert rsa is not None
    assert ec is not None
    assert (rsa.algorithm, ec.algorithm) == ("RS256", "ES256")
    assert subject.idp.requests == {DISCOVERY: 1, JWKS: 1}


async def test_a_configured_jwks_uri_needs_no_discovery(idp: OidcServer) -> None:
    subject = Subject(idp)
    store = subject.store_for(issuer="https://idp.test", jwksUri=idp.issuer + JWKS)
    assert await store.find("https://idp.test", "rsa")
    assert idp.requests == {JWKS: 1}


async def test_discovery_under_an_issuer_with_a_path(idp: OidcServer) -> None:
    issuer = idp.issuer + "/realms/x/"
    path = "/realms/x" + DISCOVERY
    document = {"issuer": issuer, "jwks_uri": idp.issuer + JWKS}
    idp.overrides[path] = Answer(json.dumps(document).encode())
    assert await Subject(idp).store_for(issuer=issuer).find(issuer, "rsa")
    assert idp.requests == {path: 1, JWKS: 1}


@pytest.mark.parametrize(
    ("cache_control", "ttl"),
    [
        ("", 300),
        ("max-age=600", 600),
        ("public, Max-Age=900, must-revalidate", 900),
        ("max-age=0", 60),
        ("max-age=1", 60),
        ("max-age=99999999", 3600),
        ("max-age=soon", 300),
        ("max-age=-5", 300),
        ("no-store", 60),
        ("no-cache, max-age=600", 60),
    ],
)
async def test_time_to_live(subject: Subject, cache_control: str, ttl: float) -> None:
    subject.idp.cache_control = cache_control
    await subject.find()
    subject.now += ttl * 0.8 - 0.1
    await subject.find()
    assert subject.fetches == 1
    subject.now += 0.2
    await subject.find()
    await subject.fetched(2)


async def test_refresh_ahead_makes_nobody_wait(subject: Subject) -> None:
    old = await subject.find()
    subject.idp.gate.clear()
    subject.now += 240
    for _ in range(20):
        assert await subject.find() is old
    subject.idp.gate.set()
    await subject.fetched(2)
    assert subject.fetches == 2
    renewed = await subject.find()
    assert renewed is not None
    assert renewed is not old


async def test_keys_past_their_time_are_fetched_before_they_are_used(subject: Subject) -> None:
    await subject.find()
    subject.idp.keys = [rsa_jwk("next")]
    subject.now += 300
    assert await subject.find("rsa") is None
    assert await subject.find("next")
    assert subject.fetches == 2


async def test_many_lookups_make_one_fetch(subject: Subject) -> None:
    subject.idp.gate.clear()
    lookups = [asyncio.create_task(subject.find("rsa" if n % 2 else "ec")) for n in range(50)]
    await asyncio.wait_for(subject.idp.seen.wait(), 10)
    subject.idp.gate.set()
    assert all(await asyncio.gather(*lookups))
    assert subject.idp.requests == {DISCOVERY: 1, JWKS: 1}


async def test_a_lookup_that_is_given_up_takes_no_other_with_it(subject: Subject) -> None:
    subject.idp.gate.clear()
    first, second = asyncio.create_task(subject.find()), asyncio.create_task(subject.find())
    await asyncio.wait_for(subject.idp.seen.wait(), 10)
    first.cancel()
    await asyncio.wait([first])
    subject.idp.gate.set()
    assert await second
    assert subject.fetches == 1


# Rotation and unknown kids --------------------------------------------------------------------------------------------


async def test_a_new_key_is_found_at_once_and_a_withdrawn_one_dies_at_once(subject: Subject) -> None:
    assert await subject.find("rsa")
    subject.idp.keys = [rsa_jwk("next"), ec_jwk("ec")]
    assert await subject.find("next")
    assert await subject.find("rsa") is None
    assert await subject.find("ec")
    assert subject.fetches == 2


async def test_a_flood_of_unknown_kids_is_one_fetch_in_30_seconds(subject: Subject) -> None:
    assert await asyncio.gather(*(subject.find(f"cold {n}") for n in range(200))) == [None] * 200
    assert subject.fetches == 1, "the set that has just been fetched for them answers them all"
    assert await asyncio.gather(*(subject.find(f"warm {n}") for n in range(200))) == [None] * 200
    for n in range(200):
        assert await subject.find(f"more {n}") is None
    assert subject.fetches == 2
    subject.now += 29.9
    assert await subject.find("unknown") is None
    assert subject.fetches == 2
    subject.now += 0.1
    assert await subject.find("unknown") is None
    assert subject.fetches == 3
    assert await subject.find("rsa"), "good kids are served all along"


async def test_an_emptied_set_kills_all_keys(subject: Subject) -> None:
    assert await subject.find("rsa")
    subject.idp.keys = []
    assert await subject.find("unknown") is None
    assert await subject.find("rsa") is None


# Failures -------------------------------------------------------------------------------------------------------------


async def test_an_issuer_that_is_down_at_the_start(subject: Subject) -> None:
    await subject.idp.down()
    with pytest.raises(Unavailable) as raised:
        await subject.find()
    assert raised.value.retry_after == 5
    await subject.idp.up()
    subject.now += 4.9
    with pytest.raises(Unavailable):
        await subject.find()
    assert subject.fetches == 0, "it is left alone for 5 s"
    subject.now += 0.1
    assert await subject.find()


async def test_old_keys_serve_an_hour_longer_while_the_issuer_is_down(subject: Subject) -> None:
    old = await subject.find()
    await subject.idp.down()
    for later in (240.0, 300.0, 1800.0, 300 + 3599.0):
        subject.now = 1000 + later
        assert await subject.find("rsa") is old
        assert await subject.find("unknown") is None
        await subject.fetched(1)
    subject.now = 1000 + 300 + 3600
    with pytest.raises(Unavailable) as raised:
        await subject.find()
    assert raised.value.retry_after == 5
    await subject.idp.up()
    subject.now += 5
    assert await subject.find()


async def test_a_failing_issuer_keeps_nobody_waiting(subject: Subject) -> None:
    old = await subject.find()
    subject.idp.overrides[JWKS] = Answer(status=500)
    subject.now += 301
    assert await subject.find() is old
    subject.idp.gate.clear()
    subject.now += 5
    for _ in range(10):
        assert await asyncio.wait_for(subject.find(), 1) is old, "one fetch hangs, and none waits for it"
    subject.idp.gate.set()
    await subject.fetched(3)


async def test_a_failed_fetch_leaves_the_old_keys_untouched(subject: Subject) -> None:
    old = await subject.find()
    subject.idp.overrides[JWKS] = Answer(b'{"keys": [')
    assert await subject.find("unknown") is None
    assert subject.fetches == 2
    assert await subject.find() is old


async def test_an_issuer_that_never_answers(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "FETCH_SECONDS", 0.2)
    subject.idp.gate.clear()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(subject.find(), 10)


KEY_SET = json.dumps({"keys": [rsa_jwk("rsa")]}).encode()
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n"


def padded(size: int) -> bytes:
    return KEY_SET[:-1] + b" " * (size - len(KEY_SET)) + b"}"


BAD_KEY_SETS = {
    "500": Answer(KEY_SET, 500),
    "404": Answer(KEY_SET, 404),
    "201": Answer(KEY_SET, 201),
    "not JSON": Answer(b"<html>"),
    "empty": Answer(b""),
    "a list": Answer(b"[]"),
    "no keys": Answer(b"{}"),
    "keys null": Answer(b'{"keys":null}'),
    "keys an object": Answer(b'{"keys":{}}'),
    "duplicate members": Answer(b'{"keys":[],' + KEY_SET[1:]),
    "BOM": Answer(b"\xef\xbb\xbf" + KEY_SET),
    "65 keys": Answer(json.dumps({"keys": [rsa_jwk("rsa")] + [{}] * 64}).encode()),
    "too large": Answer(padded(256 * 1024 + 1)),
    "too large in chunks": Answer(
        CHUNKED % (256 * 1024 + 1, padded(256 * 1024 + 1)), headers=("Transfer-Encoding: chunked",)
    ),
    "cut short": Answer(CHUNKED[:-7] % (5000, KEY_SET), headers=("Transfer-Encoding: chunked",)),
    "compressed": Answer(KEY_SET, headers=("Content-Encoding: gzip",)),
    "deep": Answer(b'{"keys":' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
}


@pytest.mark.parametrize("answer", BAD_KEY_SETS.values(), ids=BAD_KEY_SETS.keys())
async def test_bad_key_sets(subject: Subject, answer: Answer) -> None:
    subject.idp.overrides[JWKS] = answer
    with pytest.raises(Unavailable):
        await subject.find()
    assert subject.fetches == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(padded(256 * 1024)),
        Answer(CHUNKED % (len(KEY_SET), KEY_SET), headers=("Transfer-Encoding: chunked",)),
        Answer(json.dumps({"keys": [rsa_jwk("rsa")] + [{}] * 63}).encode()),
    ],
    ids=["256 KiB", "chunked", "64 keys"],
)
async def test_good_key_sets_at_the_limits(subject: Subject, answer: Answer) -> None:
    subject.idp.overrides[JWKS] = answer
    assert await subject.find()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("path", [DISCOVERY, JWKS])
async def test_no_redirect_is_followed(subject: Subject, other_idp: OidcServer, path: str, status: int) -> None:
    subject.idp.overrides[path] = Answer(status=status, headers=(f"Location: {other_idp.issuer}{path}",))
    with pytest.raises(Unavailable):
        await subject.find()
    assert not other_idp.requests


async def test_a_lying_issuer(subject: Subject, other_idp: OidcServer) -> None:
    good = {"issuer": subject.idp.issuer, "jwks_uri": other_idp.issuer + JWKS}
    other_idp.keys = [rsa_jwk("rsa")]
    for document in (
        good | {"issuer": other_idp.issuer},
        good | {"issuer": subject.idp.issuer + "/"},
        good | {"issuer": [subject.idp.issuer]},
        {"jwks_uri": good["jwks_uri"]},
        good | {"jwks_uri": None},
        good | {"jwks_uri": [good["jwks_uri"]]},
        {"issuer": good["issuer"]},
        [good],
        good | {"jwks_uri": "http://10.0.0.1/jwks"},
        good | {"jwks_uri": "http://localhost.evil.test/jwks"},
        good | {"jwks_uri": "file:///etc/passwd"},
        good | {"jwks_uri": "/jwks"},
        good | {"jwks_uri": other_idp.issuer.replace("//", "//user:password@") + JWKS},
        good | {"jwks_uri": "https://[::1/jwks"},
    ):
        subject.idp.overrides[DISCOVERY] = Answer(json.dumps(document).encode())
        subject.now += 5
        with pytest.raises(Unavailable):
            await subject.find()
    assert not other_idp.requests
    subject.idp.overrides[DISCOVERY] = Answer(json.dumps(good).encode())
    subject.now += 5
    assert await subject.find(), "a key set may live on another host, if the issuer says so"


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example.com",
        "http://10.0.0.1",
        "http://127.0.0.1.nip.io",
        "http://2130706433",
        "http://0x7f.1",
        "https://user@idp.example.com",
        "https://idp.example.com/#x",
        "ftp://idp.example.com",
        "idp.example.com",
        "https://",
        "",
    ],
)
def test_an_issuer_without_tls_stops_the_start(url: str) -> None:
    issuer = {"audience": "x", "tenantRule": "constant:a", "tenants": ["a"]}
    with pytest.raises(ValueError, match="ISSUERS"):
        KeyStore([IssuerSettings.model_validate(issuer | {"issuer": url})])
    with pytest.raises(ValueError, match="ISSUERS"):
        KeyStore([IssuerSettings.model_validate(issuer | {"issuer": "https://idp.example.com", "jwksUri": url or " "})])


async def test_closing_ends_a_fetch_under_way(subject: Subject) -> None:
    subject.idp.gate.clear()
    lookup = asyncio.create_task(subject.find())
    await asyncio.wait_for(subject.idp.seen.wait(), 10)
    await subject.store.aclose()
    await subject.store.aclose()
    await asyncio.wait([lookup])
    assert lookup.cancelled()
