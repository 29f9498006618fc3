"""Keys and addresses that a token must not choose (security.md, Tokens)."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.oidc import Forge, OidcServer, ec_jwk, ec_key, es256, jws, rs256, rsa_jwk, rsa_key
from tests.unit.auth.conftest import Verification

UNUSABLE_KEYS = {
    "use enc": rsa_jwk("k", use="enc"),
    "use a list": rsa_jwk("k", use=["sig"]),
    "alg RS512": rsa_jwk("k", alg="RS512"),
    "alg RSA-OAEP": rsa_jwk("k", alg="RSA-OAEP"),
    "alg null": rsa_jwk("k", alg=None),
    "key_ops encrypt": rsa_jwk("k", key_ops=["encrypt"]),
    "key_ops empty": rsa_jwk("k", key_ops=[]),
    "key_ops a string": rsa_jwk("k", key_ops="verify"),
    "1024 bits": rsa_jwk("k", rsa_key("k", 1024)),
}


@pytest.mark.parametrize("jwk", UNUSABLE_KEYS.values(), ids=UNUSABLE_KEYS.keys())
async def test_a_key_not_meant_for_verifying_verifies_nothing(
    trust: Verification, idp: OidcServer, forge: Forge, jwk: dict[str, object]
) -> None:
    idp.keys.append(jwk)
    bits = 1024 if "1024" in str(jwk) or len(str(jwk["n"])) < 200 else 2048
    token = forge.token(header=forge.header(kid="k"), sign=rs256(rsa_key("k", bits)))
    assert await trust.refusal(f"Bearer {token}") == "unknown_key"


async def test_es256_needs_p256(trust: Verification, idp: OidcServer, forge: Forge) -> None:
    key = ec_key("p384", ec.SECP384R1)
    for jwk in (ec_jwk("k", key), ec_jwk("k", key, crv="P-256"), ec_jwk("k", key, alg="ES256")):
        idp.keys = [jwk]
        token = forge.token(header=forge.header(alg="ES256", kid="k"), sign=es256(key))
        assert await trust.refusal(f"Bearer {token}") == "unknown_key"


async def test_no_request_goes_where_a_token_points(trust: Verification, other_idp: OidcServer, forge: Forge) -> None:
    """Only configured issuers are asked, and only once the header and the issuer are right."""
    async with OidcServer(keys=[rsa_jwk("rsa")]) as evil:
        for token in (
            forge.token(forge.claims(iss=evil.issuer)),
            forge.token(header=forge.header(jku=f"{evil.issuer}/jwks")),
            forge.token(header=forge.header(x5u=f"{evil.issuer}/jwks")),
            forge.token(header=forge.header(kid=f"{evil.issuer}/jwks")),
        ):
            await trust.refusal(f"Bearer {token}")
        assert not evil.requests
    assert not other_idp.requests


async def test_one_issuer_does_not_speak_for_another(
    trust: Verification, idp: OidcServer, other_idp: OidcServer, forge: Forge
) -> None:
    other = Forge(other_idp.issuer, tenant="b")
    sign = rs256(rsa_key("other"))
    header = other.header(kid="other")
    assert (await trust.caller(other.token(header=header, sign=sign))).tenant == "b"
    assert await trust.refusal("Bearer " + other.token(other.claims(tenant="a"), header, sign)) == "tenant"
    assert await trust.refusal("Bearer " + other.token(other.claims(iss=idp.issuer), header, sign)) == "unknown_key"
    assert await trust.refusal("Bearer " + jws(forge.header(), other.claims(), rs256(rsa_key("rsa")))) == "unknown_key"
