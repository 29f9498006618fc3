"""Which keys of a set verify tokens, and which are left out."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from app.auth.jwks import InvalidKeySet, parse_jwks
from tests.support.oidc import Json, b64, ec_jwk, ec_key, octets, rsa_jwk, rsa_key


def parse(*jwks: object) -> dict[str, str]:
    return {kid: key.algorithm for kid, key in parse_jwks(json.dumps({"keys": jwks}).encode()).items()}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"use": "sig"},
        {"key_ops": ["verify"]},
        {"key_ops": ["sign", "verify"], "use": "sig"},
        {"x5c": ["MIIB"], "x5t": "abc", "anything": {"else": 1}},
        {"kid": "k" * 256},
    ],
)
def test_usable_keys(members: Json) -> None:
    rsa, p256 = rsa_jwk("k", rsa_key("rsa")) | members, ec_jwk("k", ec_key("ec")) | members
    assert list(parse(rsa).values()) == list(parse(rsa | {"alg": "RS256"}).values()) == ["RS256"]
    assert list(parse(p256).values()) == list(parse(p256 | {"alg": "ES256"}).values()) == ["ES256"]


def test_a_loaded_key_is_the_published_one() -> None:
    document = json.dumps({"keys": [rsa_jwk("rsa"), ec_jwk("ec")]}).encode()
    keys = parse_jwks(document)
    assert keys["rsa"].public_key == rsa_key("rsa").public_key()
    assert keys["ec"].public_key == ec_key("ec").public_key()


NUMBERS = rsa_key("rsa").public_key().public_numbers()
UNUSABLE: dict[str, object] = {
    "not an object": "key",
    "null": None,
    "empty": {},
    "no kid": {name: value for name, value in rsa_jwk("rsa").items() if name != "kid"},
    "kid empty": rsa_jwk("rsa", kid=""),
    "kid too long": rsa_jwk("rsa", kid="k" * 257),
    "kid a number": rsa_jwk("rsa", kid=1),
    "kty missing": {name: value for name, value in rsa_jwk("rsa").items() if name != "kty"},
    "kty lower case": rsa_jwk("rsa", kty="rsa"),
    "kty of the other": rsa_jwk("rsa", kty="EC"),
    "kty oct": {"kty": "oct", "kid": "k", "k": b64(b"k" * 32)},
    "kty OKP": {"kty": "OKP", "kid": "k", "crv": "Ed25519", "x": b64(b"x" * 32)},
    "use enc": rsa_jwk("rsa", use="enc"),
    "use null": rsa_jwk("rsa", use=None),
    "key_ops without verify": ec_jwk("ec", key_ops=["sign"]),
    "key_ops an object": ec_jwk("ec", key_ops={"verify": True}),
    "alg of the other": rsa_jwk("rsa", alg="ES256"),
    "alg ES384": ec_jwk("ec", alg="ES384"),
    "alg null": ec_jwk("ec", alg=None),
    "RSA of 1024 bits": rsa_jwk("k", rsa_key("k", 1024)),
    "RSA of 2040 bits": rsa_jwk("rsa", n=octets(NUMBERS.n >> 8 | 1)),
    "RSA of 8200 bits": rsa_jwk("rsa", n=octets(1 << 8199 | 1)),
    "RSA exponent 1": rsa_jwk("rsa", e="AQ"),
    "RSA exponent even": rsa_jwk("rsa", e=octets(65536)),
    "RSA exponent huge": rsa_jwk("rsa", e=rsa_jwk("rsa")["n"]),
    "RSA without n": {"kty": "RSA", "kid": "k", "e": "AQAB"},
    "RSA without e": {"kty": "RSA", "kid": "k", "n": rsa_jwk("rsa")["n"]},
    "RSA n a number": rsa_jwk("rsa", n=NUMBERS.n % 2**60),
    "RSA n padded": rsa_jwk("rsa", n=rsa_jwk("rsa")["n"] + "=="),
    "RSA n of zero": rsa_jwk("rsa", n="AA"),
    "RSA n of one impossible character": rsa_jwk("rsa", n="A"),
    "RSA private": rsa_jwk("rsa", d=octets(rsa_key("rsa").private_numbers().d)),
    "P-256 private": ec_jwk("ec", d=octets(ec_key("ec").private_numbers().private_value)),
    "P-384": ec_jwk("k", ec_key("k", ec.SECP384R1)),
    "P-384 that says P-256": ec_jwk("k", ec_key("k", ec.SECP384R1), crv="P-256"),
    "secp256k1": ec_jwk("ec", crv="secp256k1"),
    "crv missing": {name: value for name, value in ec_jwk("ec").items() if name != "crv"},
    "off the curve": ec_jwk("ec", y=b64(b"\x01" * 32)),
    "the origin": ec_jwk("ec", x=b64(bytes(32)), y=b64(bytes(32))),
    "a short coordinate": ec_jwk("ec", x=b64(b"\x01" * 31)),
    "a long coordinate": ec_jwk("ec", x=octets(ec_key("ec").public_key().public_numbers().x, 33)),
    "y missing": {name: value for name, value in ec_jwk("ec").items() if name != "y"},
}


@pytest.mark.parametrize("jwk", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_unusable_keys_are_left_out_and_harm_no_other(jwk: object) -> None:
    assert parse(jwk, rsa_jwk("good")) == {"good": "RS256"}
    assert parse(ec_jwk("good"), jwk) == {"good": "ES256"}


def test_two_keys_under_one_kid_are_none() -> None:
    assert parse(rsa_jwk("k", rsa_key("rsa")), ec_jwk("k", ec_key("ec")), rsa_jwk("good")) == {"good": "RS256"}
    assert parse(rsa_jwk("k", rsa_key("rsa")), rsa_jwk("k", rsa_key("evil"), use="enc")) == {"k": "RS256"}


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{}", b'{"keys":1}', b'{"keys":[],"keys":[]}', b"\xff"])
def test_documents_that_are_no_key_set(raw: bytes) -> None:
    with pytest.raises(InvalidKeySet):
        parse_jwks(raw)


def test_an_empty_set_is_a_set() -> None:
    assert parse() == {}


def test_size_of_a_set() -> None:
    assert parse(*[{}] * 63, rsa_jwk("rsa")) == {"rsa": "RS256"}
    with pytest.raises(InvalidKeySet, match="65 keys"):
        parse(*[{}] * 64, rsa_jwk("rsa"))
