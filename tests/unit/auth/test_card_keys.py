"""The keys of card signatures: the same on all replicas, verified by hand from the JWKS; and how to get in."""

import base64
import hashlib
import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from pydantic import SecretStr

from app.auth.card_keys import CardKeys
from app.auth.card_security import card_security
from app.settings import IssuerSettings, Settings

OLD, NEW = b"o" * 32, b"n" * 32
JKU = "https://broker.example/.well-known/jwks.json"


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def verify(signature: dict[str, str], payload: bytes, jwks: dict[str, Any]) -> None:
    """RFC 7515 by hand. Raises KeyError for an unknown kid, InvalidSignature."""
    header = json.loads(unb64(signature["protected"]))
    key = {key["kid"]: key for key in jwks["keys"]}[header["kid"]]
    x, y = (int.from_bytes(unb64(key[name])) for name in "xy")
    raw = unb64(signature["signature"])
    assert (header["alg"], header["typ"], len(raw)) == ("ES256", "JOSE", 64)
    der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    signed = f"{signature['protected']}.{base64.urlsafe_b64encode(payload).rstrip(b'=').decode()}".encode()
    ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key().verify(der, signed, ec.ECDSA(SHA256()))


def test_a_signature_verifies_with_the_published_key_and_nothing_else() -> None:
    keys = CardKeys([OLD])
    signature = keys.sign(b'{"name":"x"}', JKU)
    verify(signature, b'{"name":"x"}', keys.jwks)
    with pytest.raises(InvalidSignature):
        verify(signature, b'{"name":"y"}', keys.jwks)
    assert json.loads(unb64(signature["protected"]))["jku"] == JKU


def test_replicas_sign_alike() -> None:
    assert CardKeys([OLD]).sign(b"{}", JKU) == CardKeys([OLD]).sign(b"{}", JKU)
    assert CardKeys([OLD]).jwks == CardKeys([OLD]).jwks
    assert CardKeys([OLD]).sign(b"{}", JKU) != CardKeys([NEW]).sign(b"{}", JKU)


def test_rotation_the_first_signs_and_all_verify() -> None:
    before, announced, after = CardKeys([OLD]), CardKeys([OLD, NEW]), CardKeys([NEW, OLD])
    verify(before.sign(b"{}", JKU), b"{}", after.jwks)
    verify(after.sign(b"{}", JKU), b"{}", announced.jwks)
    assert announced.sign(b"{}", JKU) == before.sign(b"{}", JKU)
    with pytest.raises(KeyError):
        verify(before.sign(b"{}", JKU), b"{}", CardKeys([NEW]).jwks)
    assert len(CardKeys([OLD, OLD]).jwks["keys"]) == 1


def test_the_kid_is_the_rfc_7638_thumbprint_and_nothing_private_is_published() -> None:
    (key,) = CardKeys([OLD]).jwks["keys"]
    required = json.dumps({name: key[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":")).encode()
    assert unb64(key["kid"]) == hashlib.sha256(required).digest()
    assert set(key) == {"alg", "crv", "kid", "kty", "use", "x", "y"}


def oidc(*issuers: dict[str, Any]) -> Settings:
    common = {"audience": "waystation", "tenantRule": "constant:secret-tenant", "tenants": ["secret-tenant"]}
    return Settings(
        auth_mode="oidc", secret_key=SecretStr("k" * 32), issuers=[IssuerSettings(**(common | one)) for one in issuers]
    )


def test_cards_name_the_issuers_that_can_let_a_client_in() -> None:
    security = card_security(
        oidc(
            {"issuer": "https://one.example/"},
            {"issuer": "https://worker.example", "allowedScopes": ["worker:lease"]},
            {"issuer": "https://three.example", "allowedScopes": ["tasks:read", "admin"]},
            {"issuer": "https://four.example", "jwksUri": "https://four.example/keys"},
        )
    )
    assert {
        name: scheme["openIdConnectSecurityScheme"]["openIdConnectUrl"]
        for name, scheme in security.schemes.items()
        if name != "bearer"
    } == {
        "oidc1": "https://one.example/.well-known/openid-configuration",
        "oidc3": "https://three.example/.well-known/openid-configuration",
    }
    assert security.requirements[0] == {"schemes": {"bearer": {"list": []}}}, "a token from elsewhere is enough"
    assert security.requirements[1:] == [
        {"schemes": {"oidc1": {"list": ["push:write", "tasks:cancel", "tasks:read", "tasks:write"]}}},
        {"schemes": {"oidc3": {"list": ["tasks:read"]}}},
    ]
    assert "secret-tenant" not in json.dumps([security.schemes, security.requirements])


def test_a_dev_deployment_wants_bearer_tokens() -> None:
    settings = Settings(auth_mode="dev", dev_secret=SecretStr("d" * 32))
    assert list(card_security(settings).schemes) == ["bearer"]
