"""Good tokens: what they prove, up to the very limits; the dev mode; and what a remembered token is worth."""

import time

import pytest
from hypothesis import HealthCheck, settings
from jose import jwk, jwt
from jose.backends import cryptography_backend
from jose.exceptions import JWTError

from app.auth import accepted, tokens
from app.auth.caller import Caller
from app.auth.keys import KeyStore
from app.auth.tokens import TokenVerifier
from app.errors import Unavailable
from tests.support.oidc import JWKS, Forge, Json, OidcServer, ec_key, es256, hs256, jws, rs256, rsa_jwk, rsa_key
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
