"""Dev mode: HS256 tokens by native-api.md, for loopback only (security.md, Tokens)."""

import asyncio
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.auth.caller import Caller
from app.auth.keys import KeyStore
from app.auth.tokens import mint_dev
from app.errors import Unauthenticated
from app.settings import Settings
from tests.support.oidc import Forge, Json, OidcServer, hs256, jws
from tests.support.tokens import DEV_SECRET, mint
from tests.unit.auth.conftest import Verification, issuer_settings, oidc_settings, trusting

DAY = 24 * 3600


def dev_settings(**changes: object) -> Settings:
    return Settings.model_validate({"auth_mode": "dev", "dev_secret": DEV_SECRET} | changes)


@pytest.fixture
def dev() -> Verification:
    return trusting(dev_settings(), KeyStore([]))


async def test_a_dev_token(dev: Verification) -> None:
    caller = await dev.caller(mint("a", "w1", "worker:lease admin x:y", ["stock"], seconds=60))
    assert (caller.tenant, caller.subject, caller.agents) == ("a", "w1", frozenset({"stock"}))
    assert caller.scopes == {"worker:lease", "admin"}


async def test_mint_and_verify(dev: Verification) -> None:
    now = time.time()
    token = mint_dev(
        DEV_SECRET, tenant="a", subject="s", scope="tasks:read tenant:admin", agents=["x"], ttl=DAY, now=now
    )
    assert await dev.caller(token) == Caller(
        "a", "s", frozenset({"tasks:read", "tenant:admin"}), frozenset({"x"}), float(int(now) + DAY)
    )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"tenant": "A"}, "tenant"),
        ({"tenant": "a\n"}, "tenant"),
        ({"subject": ""}, "subject"),
        ({"subject": "s" * 257}, "subject"),
        ({"ttl": 0}, "lifetime"),
        ({"ttl": DAY + 1}, "lifetime"),
        ({"scope": "tasks:raed"}, "unknown scope"),
        ({"secret": "short"}, "32 bytes"),
    ],
)
def test_mint_refuses_what_the_verifier_would(changes: Json, match: str) -> None:
    given = {"tenant": "a", "subject": "s", "scope": "", "agents": [], "ttl": 60, "now": time.time()} | changes
    with pytest.raises(ValueError, match=match):
        mint_dev(given.pop("secret", DEV_SECRET), **given)


def dev_token(header: dict[str, object], secret: bytes = DEV_SECRET.encode(), **claims: object) -> str:
    good = Forge("waystation-dev").claims(aud="waystation")
    return jws({"alg": "HS256", "typ": "JWT"} | header, good | claims, hs256(secret))


@pytest.mark.parametrize("typ", ["JWT", "at+jwt"])
async def test_types_of_dev_tokens(dev: Verification, typ: str) -> None:
    assert await dev.caller(dev_token({"typ": typ}))


@pytest.mark.parametrize(
    ("make", "reason"),
    {
        "another secret": (lambda: dev_token({}, b"another secret of more than 32 bytes"), "signature"),
        "no secret": (lambda: dev_token({}, b""), "signature"),
        "a kid": (lambda: dev_token({"kid": "x"}), "kid"),
        "a null kid": (lambda: dev_token({"kid": None}), "kid"),
        "typ null": (lambda: dev_token({"typ": None}), "type"),
        "typ id+jwt": (lambda: dev_token({"typ": "id+jwt"}), "type"),
        "HS384": (lambda: dev_token({"alg": "HS384"}), "algorithm"),
        "RS256": (lambda: dev_token({"alg": "RS256"}), "algorithm"),
        "none": (lambda: dev_token({"alg": "none"}), "algorithm"),
        "crit": (lambda: dev_token({"crit": ["x"]}), "header"),
        "another issuer": (lambda: dev_token({}, iss="waystation"), "issuer"),
        "another audience": (lambda: dev_token({}, aud="https://waystation.test"), "claims"),
        "a tenant in capitals": (lambda: dev_token({}, tenant="A"), "tenant"),
        "a tenant and a newline": (lambda: dev_token({}, tenant="a\n"), "tenant"),
        "two tenants": (lambda: dev_token({}, tenant="a,b"), "tenant"),
        "a quoted tenant": (lambda: dev_token({}, tenant="a'"), "tenant"),
        "an underscore first": (lambda: dev_token({}, tenant="_a"), "tenant"),
        "no tenant": (lambda: dev_token({}, tenant=None), "tenant"),
        "a year": (lambda: dev_token({}, exp=int(time.time()) + 365 * DAY), "claims"),
    }.values(),
)
async def test_bad_dev_tokens(dev: Verification, make: Callable[[], str], reason: str) -> None:
    """The tokens are made by the test, not with the table: they live for minutes only."""
    assert await dev.refusal(f"Bearer {make()}") == reason


async def test_dev_tokens_mean_nothing_in_oidc_mode(idp: OidcServer) -> None:
    settings = oidc_settings(issuer_settings(idp))
    trust = trusting(settings.model_copy(update={"dev_secret": dev_settings().dev_secret}), KeyStore(settings.issuers))
    assert await trust.refusal(f"Bearer {mint('a')}") == "issuer"
    assert await trust.refusal("Bearer " + dev_token({}, iss=idp.issuer)) == "algorithm"


async def test_issuers_mean_nothing_in_dev_mode(idp: OidcServer, forge: Forge) -> None:
    settings = dev_settings(issuers=[issuer_settings(idp)])
    trust = trusting(settings, KeyStore(settings.issuers))
    assert await trust.caller(mint("z"))
    assert await trust.refusal("Bearer " + forge.token()) == "issuer"
    dressed_up = forge.token(forge.claims(iss="waystation-dev", aud="waystation"))
    assert await trust.refusal(f"Bearer {dressed_up}") == "algorithm"
    assert not idp.requests


@pytest.mark.parametrize(
    "secret", ["ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ", "-----BEGIN PUBLIC KEY-----\n" + "A" * 64]
)
def test_a_public_key_is_no_secret(secret: str) -> None:
    with pytest.raises(ValueError, match="dev secret"):
        trusting(dev_settings(dev_secret=secret), KeyStore([]))


GOOD_DEV_TOKEN = mint("a", seconds=3600)
PIECES = st.sampled_from(
    ["", ".", "=", "A", "_", "é", "\0", "eyJhbGciOiJub25lIn0", GOOD_DEV_TOKEN[:40], GOOD_DEV_TOKEN[40:]]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(
    st.text(max_size=50)
    | st.lists(PIECES).map("".join)
    | st.builds(
        lambda place, new: GOOD_DEV_TOKEN[:place] + new + GOOD_DEV_TOKEN[place + 1 :],
        st.integers(0, len(GOOD_DEV_TOKEN)),
        st.text(max_size=3),
    )
)
def test_nothing_but_401(token: str) -> None:
    dev = trusting(dev_settings(), KeyStore([]))
    try:
        caller = asyncio.run(dev.caller(token))
    except Unauthenticated:
        assert dev.failures != ["error"]
    else:
        # Nothing is another token: only the last character of a base64 text has bits that mean nothing.
        assert token.strip(" ")[:-1] == GOOD_DEV_TOKEN[:-1]
        assert caller.tenant == "a"
