"""Good tokens: what they prove, up to the very limits; the dev mode; and what a remembered token is worth."""

import asyncio
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jose import jwk, jwt
from jose.backends import cryptography_backend
from jose.exceptions import JWTError

from app.auth import accepted, tokens
from app.auth.caller import Caller
from app.auth.keys import KeyStore
from app.auth.tokens import TokenVerifier, mint_dev
from app.errors import Unauthenticated, Unavailable
from app.settings import Settings
from tests.support.oidc import JWKS, Forge, Json, OidcServer, ec_key, es256, hs256, jws, rs256, rsa_jwk, rsa_key
from tests.support.tokens import DEV_SECRET, mint
from tests.unit.auth.conftest import Verification, issuer_settings, oidc_settings, trusting

# The machine may be busy: a slow example is no fault.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

DAY = 24 * 3600


def test_the_library_uses_the_cryptography_backend() -> None:
    """The other backends are the ones with CVE-2024-23342; the extra ``[cryptography]`` decides."""
    assert jwk.get_key("RS256") is cryptography_backend.CryptographyRSAKey
    assert jwk.get_key("ES256") is cryptography_backend.CryptographyECKey
    assert jwk.get_key("HS256") is cryptography_backend.CryptographyHMACKey


@pytest.mark.parametrize("claim", ["exp", "iat", "aud", "iss", "sub"])
def test_the_library_knows_each_of_our_options(claim: str) -> None:
    """It ignores what it does not know, so a misspelt option would be none."""
    claims = {name: value for name, value in Forge("i").claims(aud="a").items() if name != claim}
    token = jws({"alg": "HS256"}, claims, hs256(b"k" * 32))
    with pytest.raises(JWTError, match=f'missing required key "{claim}"'):
        jwt.decode(token, "k" * 32, ["HS256"], tokens._OPTIONS, "a", "i")  # pyright: ignore[reportPrivateUsage]


async def test_a_token_becomes_a_caller(trust: Verification, forge: Forge) -> None:
    token = forge.token(forge.claims(agents=["stock", "review"], scope="tasks:read  tasks:cancel unheard:of"))
    assert await trust.caller(token) == Caller(
        tenant="a",
        subject="alice",
        scopes=frozenset({"tasks:read", "tasks:cancel"}),
        agents=frozenset({"stock", "review"}),
        expires_at=forge.now + 600.0,
    )
    assert trust.failures == []


@pytest.mark.parametrize("typ", ["at+jwt", "application/at+jwt", "AT+JWT"])
async def test_types_of_access_tokens(trust: Verification, forge: Forge, typ: str) -> None:
    assert await trust.caller(forge.token(header=forge.header(typ=typ)))


async def test_what_may_differ(trust: Verification, forge: Forge) -> None:
    es = forge.token(header=forge.header(alg="ES256", kid="ec"), sign=es256(ec_key("ec")))
    assert (await trust.caller(es)).tenant == "a"
    several = forge.token(forge.claims(aud=["https://elsewhere.test", "https://waystation.test"]))
    assert (await trust.caller(several)).tenant == "a"
    bare = await trust.caller(forge.token(forge.claims(scope=...)))
    assert (bare.scopes, bare.agents) == (frozenset(), frozenset())
    assert await trust.verifier.verify(f"bearer  {forge.token()}")
    assert (await trust.caller(forge.token(forge.claims(sub="s" * 256)))).subject == "s" * 256


async def test_the_limits_of_time_themselves(idp: OidcServer) -> None:
    """A clock that stands still in the near future: the library's own, real one has not come to its limits yet."""
    settings = oidc_settings(issuer_settings(idp))
    forge = Forge(idp.issuer, now=int(time.time()) + 20)
    trust = trusting(settings, KeyStore(settings.issuers), clock=float(forge.now))
    now = forge.now
    for good in (
        {"iat": now - 600, "exp": now - 29},
        {"iat": now + 30, "exp": now + 60},
        {"nbf": now + 10},
        {"nbf": 0},
        {"exp": now + DAY},
        {"iat": now - DAY + 1, "exp": now + 1},
    ):
        assert await trust.caller(forge.token(forge.claims(**good)))
    for bad, reason in (
        ({"iat": now - 600, "exp": now - 30}, "expired"),
        ({"iat": now + 31, "exp": now + 60}, "claims"),
        ({"exp": now + DAY + 1}, "claims"),
        ({"iat": now, "exp": now}, "claims"),
    ):
        assert await trust.refusal(f"Bearer {forge.token(forge.claims(**bad))}") == reason


async def test_nbf_by_our_own_clock(idp: OidcServer) -> None:
    settings = oidc_settings(issuer_settings(idp))
    forge = Forge(idp.issuer, now=int(time.time()) - 20)
    trust = trusting(settings, KeyStore(settings.issuers), clock=float(forge.now))
    assert await trust.caller(forge.token(forge.claims(nbf=forge.now + 30)))
    assert await trust.refusal("Bearer " + forge.token(forge.claims(nbf=forge.now + 31))) == "claims"


async def test_an_issuer_grants_no_more_than_it_may(idp: OidcServer, forge: Forge) -> None:
    everything = "tasks:read tasks:write tasks:cancel push:write agents:read agents:admin worker:lease effects:decide"
    token = forge.token(forge.claims(scope=f"{everything} metrics:read tenant:admin admin"))
    default = {"tasks:read", "tasks:write", "tasks:cancel", "push:write", "agents:read"}
    for allowed, expected in (
        ({}, default),
        ({"allowedScopes": ["tasks:*", "push:write", "agents:read"]}, default),
        ({"allowedScopes": ["worker:lease"]}, {"worker:lease"}),
        ({"allowedScopes": ["tenant:*", "agents:*"]}, {"tenant:admin", "agents:read", "agents:admin"}),
        ({"allowedScopes": ["admin", "tasks:read"]}, {"admin", "tasks:read"}),
    ):
        settings = oidc_settings(issuer_settings(idp, **allowed))
        caller = await trusting(settings, KeyStore(settings.issuers)).caller(token)
        assert caller.scopes == expected


@pytest.mark.parametrize(
    ("rule", "extra", "claim"),
    [
        ("claim:org", {}, {"org": "a"}),
        ("claim:org.unit", {}, {"org": {"unit": "a"}}),
        ("claim:https://idp.test/tenant", {}, {"https://idp.test/tenant": "a"}),
        ("claim:ext.idp.test/tenant", {}, {"ext": {"idp.test/tenant": "a"}}),
        ("constant:a", {}, {}),
        ("map:org", {"tenantMap": {"Org 17": "a"}}, {"org": "Org 17"}),
        ('map:{"Org 17": "a"}', {}, {"tenant": "Org 17"}),
    ],
)
async def test_tenant_rules(idp: OidcServer, forge: Forge, rule: str, extra: Json, claim: Json) -> None:
    settings = oidc_settings(issuer_settings(idp, tenantRule=rule, **extra))
    trust = trusting(settings, KeyStore(settings.issuers))
    claims = forge.claims(tenant=...) | claim
    assert (await trust.caller(forge.token(claims))).tenant == "a"
    for name in claim:
        for wrong in ("c", ["a"], {"unit": ["a"]}, {"unit": {"a": 1}}, None, 7):
            assert await trust.refusal("Bearer " + forge.token(claims | {name: wrong})) == "tenant"


@pytest.mark.parametrize(
    "changes",
    [
        {"tenantRule": "claim:"},
        {"tenantRule": "constant:"},
        {"tenantRule": "constant:A"},
        {"tenantRule": "map:org"},
        {"tenantRule": "map:"},
        {"tenantRule": "map:{"},
        {"tenantRule": 'map:{"x": 1}'},
        {"tenantRule": "tenant"},
        {"tenantRule": ""},
        {"tenants": ["A"]},
        {"tenants": ["a", "*"]},
        {"audience": ""},
        {"allowedScopes": ["tasks:raed"]},
        {"allowedScopes": ["*"]},
        {"allowedScopes": ["nothing:*"]},
    ],
)
async def test_a_wrong_issuer_stops_the_start(idp: OidcServer, changes: dict[str, object]) -> None:
    settings = oidc_settings(issuer_settings(idp, **changes))
    with pytest.raises(ValueError, match=idp.issuer):
        TokenVerifier(settings, KeyStore(settings.issuers), time.time, print)


async def test_an_issuer_is_configured_once(idp: OidcServer) -> None:
    settings = oidc_settings(issuer_settings(idp), issuer_settings(idp, tenants=["b"]))
    with pytest.raises(ValueError, match="once"):
        TokenVerifier(settings, KeyStore(settings.issuers), time.time, print)


async def test_the_flag_for_typ_jwt(idp: OidcServer, forge: Forge) -> None:
    settings = oidc_settings(issuer_settings(idp, allowJwtTyp=True))
    trust = trusting(settings, KeyStore(settings.issuers))
    assert await trust.caller(forge.token(header=forge.header(typ="JWT")))
    assert await trust.caller(forge.token())
    assert await trust.refusal("Bearer " + forge.token(header=forge.header(typ=...))) == "type"
    assert await trust.refusal("Bearer " + forge.token(header=forge.header(typ="id+jwt"))) == "type"


async def test_a_valid_token_lives_beside_foreign_keys(trust: Verification, idp: OidcServer, forge: Forge) -> None:
    """The library given the whole set dies on the first key of another type."""
    idp.keys = [{"kty": "OKP", "kid": "ed"}, {"kty": "oct", "k": "AA"}, {}, {"kty": "RSA", "kid": "x"}, *idp.keys]
    assert await trust.caller(forge.token())


async def test_keys_that_cannot_be_had_are_a_503(trust: Verification, idp: OidcServer, forge: Forge) -> None:
    await idp.down()
    with pytest.raises(Unavailable) as raised:
        await trust.caller(forge.token())
    assert raised.value.retry_after == 5
    assert trust.failures == ["keys_unavailable"]


# A remembered token ---------------------------------------------------------------------------------------------------


async def test_a_remembered_token_dies_with_its_key(idp: OidcServer, forge: Forge) -> None:
    settings = oidc_settings(issuer_settings(idp))
    now = 0.0
    trust = trusting(settings, KeyStore(settings.issuers, clock=lambda: now))
    assert await trust.caller(forge.token()) == await trust.caller(forge.token())
    idp.keys = [rsa_jwk("new")]
    new = forge.token(header=forge.header(kid="new"), sign=rs256(rsa_key("new")))
    assert await trust.caller(new)
    assert await trust.refusal(f"Bearer {forge.token()}") == "unknown_key"
    # The same kid, another key.
    idp.keys = [rsa_jwk("new", rsa_key("newer"))]
    now += 3600
    assert await trust.refusal(f"Bearer {new}") == "signature"


async def test_a_remembered_token_expires(idp: OidcServer) -> None:
    settings = oidc_settings(issuer_settings(idp))
    now = time.time()
    failures: list[str] = []
    verifier = TokenVerifier(settings, KeyStore(settings.issuers), lambda: now, failures.append)
    trust, forge = Verification(verifier, failures), Forge(idp.issuer, now=int(now))
    token = forge.token()
    assert await trust.caller(token)
    now = forge.now + 600 + 29.9
    assert await trust.caller(token)
    now = forge.now + 600 + 30.0
    assert await trust.refusal(f"Bearer {token}") == "expired"


async def test_a_remembered_token_keeps_its_keys_fresh(idp: OidcServer, forge: Forge) -> None:
    """Also when nobody comes with a new token, the issuer's failure and its end of grace are noticed."""
    settings = oidc_settings(issuer_settings(idp))
    now = 0.0
    trust = trusting(settings, KeyStore(settings.issuers, clock=lambda: now))
    assert await trust.caller(forge.token())
    assert idp.requests[JWKS] == 1
    now = 300.0
    assert await trust.caller(forge.token())
    assert idp.requests[JWKS] == 2
    await idp.down()
    now = 300.0 + 300 + 3599
    assert await trust.caller(forge.token())
    now = 300.0 + 300 + 3600 + 5
    with pytest.raises(Unavailable):
        await trust.caller(forge.token())


async def test_a_token_beside_a_remembered_one_is_judged_by_itself(trust: Verification, forge: Forge) -> None:
    token = forge.token()
    assert await trust.caller(token)
    head, payload, signature = token.split(".")
    assert await trust.refusal(f"Bearer {head}.{payload}.{signature[:-4]}AAAA") == "signature"
    assert (await trust.caller(forge.token(forge.claims(sub="bob")))).subject == "bob"


async def test_only_the_latest_tokens_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepted, "MAX_REMEMBERED", 3)
    remembered = accepted.AcceptedTokens()
    proof = accepted.Accepted(Caller("a", "s", frozenset(), frozenset(), 0.0), "i", None)
    for name in "abcd":
        remembered.put(name, proof)
    assert [remembered.get(name) for name in "abcd"] == [None, proof, proof, proof]


async def test_what_nobody_has_thought_of_is_a_401(
    idp: OidcServer, forge: Forge, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(KeyStore):
        async def find(self, issuer: str, kid: str) -> None:
            raise RecursionError(f"{issuer} {kid}")

    settings = oidc_settings(issuer_settings(idp))
    token = forge.token()
    assert await trusting(settings, Broken(settings.issuers)).refusal(f"Bearer {token}") == "error"
    assert "RecursionError" in caplog.text
    assert forge.issuer not in caplog.text


# Dev mode -------------------------------------------------------------------------------------------------------------


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
    ("token", "reason"),
    {
        "another secret": (dev_token({}, b"another secret of more than 32 bytes"), "signature"),
        "no secret": (dev_token({}, b""), "signature"),
        "a kid": (dev_token({"kid": "x"}), "kid"),
        "a null kid": (dev_token({"kid": None}), "kid"),
        "typ null": (dev_token({"typ": None}), "type"),
        "typ id+jwt": (dev_token({"typ": "id+jwt"}), "type"),
        "HS384": (dev_token({"alg": "HS384"}), "algorithm"),
        "RS256": (dev_token({"alg": "RS256"}), "algorithm"),
        "none": (dev_token({"alg": "none"}), "algorithm"),
        "crit": (dev_token({"crit": ["x"]}), "header"),
        "another issuer": (dev_token({}, iss="waystation"), "issuer"),
        "another audience": (dev_token({}, aud="https://waystation.test"), "claims"),
        "a tenant in capitals": (dev_token({}, tenant="A"), "tenant"),
        "a tenant and a newline": (dev_token({}, tenant="a\n"), "tenant"),
        "two tenants": (dev_token({}, tenant="a,b"), "tenant"),
        "a quoted tenant": (dev_token({}, tenant="a'"), "tenant"),
        "an underscore first": (dev_token({}, tenant="_a"), "tenant"),
        "no tenant": (dev_token({}, tenant=None), "tenant"),
        "a year": (dev_token({}, exp=int(time.time()) + 365 * DAY), "claims"),
    }.values(),
)
async def test_bad_dev_tokens(dev: Verification, token: str, reason: str) -> None:
    assert await dev.refusal(f"Bearer {token}") == reason


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


@unhurried
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
