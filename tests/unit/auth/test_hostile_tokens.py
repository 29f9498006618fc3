"""Tokens that must not pass, by the rows of security.md's table: each is refused, and for the reason it was made for.

The reason is compared so that no row is refused by accident: apart from its one fault every token here is good, with a
real signature over exactly these bytes.
"""

import base64
import json
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding

from app.auth.claims import FAILURE_REASONS
from tests.support.oidc import Forge, b64, ec_key, es256, hs256, rs256, rsa_jwk, rsa_key
from tests.unit.auth.conftest import Verification

Case = tuple[str, str, Callable[[Forge], str]]
DAY = 24 * 3600


def claims(name: str, reason: str = "claims", **changes: object) -> Case:
    return name, reason, lambda forge: forge.token(forge.claims(**changes))


def at(name: str, reason: str, changes: Callable[[int], dict[str, object]]) -> Case:
    return name, reason, lambda forge: forge.token(forge.claims(**changes(forge.now)))


def header(name: str, reason: str, **changes: object) -> Case:
    return name, reason, lambda forge: forge.token(header=forge.header(**changes))


def raw_claims(name: str, reason: str, edit: Callable[[str], str]) -> Case:
    return name, reason, lambda forge: forge.token(edit(json.dumps(forge.claims())).encode("utf-8", "surrogatepass"))


def raw_header(name: str, edit: Callable[[str], str]) -> Case:
    return name, "malformed", lambda forge: forge.token(header=edit(json.dumps(forge.header())).encode())


def member(text: str) -> Callable[[str], str]:
    """Puts a member behind all others of a printed object."""
    return lambda printed: printed[:-1] + "," + text + "}"


def public(encoding: serialization.Encoding) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return rsa_key("rsa").public_key().public_bytes(encoding, form)


def with_secret(name: str, secret: Callable[[], bytes]) -> Case:
    """The classic confusion: an HMAC over a public key that everybody knows."""
    return name, "algorithm", lambda forge: forge.token(header=forge.header(alg="HS256"), sign=hs256(secret()))


def es_signed(name: str, sign: Callable[[bytes], bytes], kid: str = "ec") -> Case:
    return name, "signature", lambda forge: forge.token(header=forge.header(alg="ES256", kid=kid), sign=sign)


def cut(name: str, reason: str, edit: Callable[[str], str]) -> Case:
    return name, reason, lambda forge: edit(forge.token())


def swap_payload(token: str) -> str:
    head, payload, signature = token.split(".")
    content = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{head}.{b64(json.dumps(content | {'sub': 'mallory'}).encode())}.{signature}"


def flip_last_byte(token: str) -> str:
    head, _, signature = token.rpartition(".")
    octets = bytearray(base64.urlsafe_b64decode(signature + "=="))
    octets[-1] ^= 1
    return f"{head}.{b64(bytes(octets))}"


def pss(data: bytes) -> bytes:
    scheme = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    return rsa_key("rsa").sign(data, scheme, hashes.SHA256())


def sha512(data: bytes) -> bytes:
    return rsa_key("rsa").sign(data, padding.PKCS1v15(), hashes.SHA512())


def der(data: bytes) -> bytes:
    return ec_key("ec").sign(data, ec.ECDSA(hashes.SHA256()))


ALGORITHMS: list[Case] = [
    header("none", "algorithm", alg="none"),
    header("None", "algorithm", alg="None"),
    header("empty", "algorithm", alg=""),
    header("missing", "algorithm", alg=...),
    header("null", "algorithm", alg=None),
    header("a number", "algorithm", alg=256),
    header("a list", "algorithm", alg=["RS256"]),
    header("an object", "algorithm", alg={"RS256": 1}),
    header("a part of RS256", "algorithm", alg="RS"),
    header("lower case", "algorithm", alg="rs256"),
    header("a space behind", "algorithm", alg="RS256 "),
    ("RS512, rightly signed", "algorithm", lambda forge: forge.token(header=forge.header(alg="RS512"), sign=sha512)),
    ("PS256, rightly signed", "algorithm", lambda forge: forge.token(header=forge.header(alg="PS256"), sign=pss)),
    header("EdDSA", "algorithm", alg="EdDSA"),
    header("ES384", "algorithm", alg="ES384", kid="ec"),
    header("an encryption algorithm", "algorithm", alg="dir"),
    with_secret("HS256 with the public key's PEM", lambda: public(serialization.Encoding.PEM)),
    with_secret("HS256 with the public key's DER", lambda: public(serialization.Encoding.DER)),
    with_secret("HS256 with the modulus", lambda: rsa_jwk("rsa")["n"].encode()),
    with_secret("HS256 with an empty secret", lambda: b""),
    header("ES256 under the RSA key's kid", "algorithm", alg="ES256"),
    header("RS256 under the EC key's kid", "algorithm", kid="ec"),
]

HEADERS: list[Case] = [
    *(
        header(f"{name} in the header", "header", **{name: value})
        for name, value in {
            "crit": ["exp"],
            "b64": False,
            "jku": "https://evil.test/jwks",
            "x5u": "https://evil.test/chain",
            "jwk": rsa_jwk("evil"),
            "x5c": ["MIIB"],
            "zip": "DEF",
            "enc": "A256GCM",
        }.items()
    ),
    header("an empty crit", "header", crit=[]),
    header("a null jku", "header", jku=None),
    ("a key of its own in the header", "header", lambda forge: own_key(forge)),
    header("no typ", "type", typ=...),
    header("typ JWT without the issuer's flag", "type", typ="JWT"),
    header("an ID token's typ", "type", typ="id+jwt"),
    header("a logout token", "type", typ="logout+jwt"),
    header("a DPoP proof", "type", typ="dpop+jwt"),
    header("typ a list", "type", typ=["at+jwt"]),
    header("no kid", "kid", kid=...),
    header("an empty kid", "kid", kid=""),
    header("a null kid", "kid", kid=None),
    header("kid a number", "kid", kid=1),
    header("kid a list", "kid", kid=["rsa"]),
    header("kid of 257 characters", "kid", kid="k" * 257),
    header("an unknown kid", "unknown_key", kid="nobody"),
    header("a kid in another case", "unknown_key", kid="RSA"),
    header("a kid that is a path", "unknown_key", kid="../../dev/null"),
    header("a kid that is SQL", "unknown_key", kid="' UNION SELECT 'x"),
    ("the other issuer's kid", "unknown_key", lambda f: other_kid(f)),
]


def own_key(forge: Forge) -> str:
    return forge.token(header=forge.header(jwk=rsa_jwk("evil"), kid="evil"), sign=rs256(rsa_key("evil")))


def other_kid(forge: Forge) -> str:
    return forge.token(header=forge.header(kid="other"), sign=rs256(rsa_key("other")))


REQUIRED: list[Case] = [
    claims("no exp", exp=...),
    claims("no iat", iat=...),
    claims("no aud", aud=...),
    claims("no sub", sub=...),
    claims("no iss", "issuer", iss=...),
    claims("no tenant", "tenant", tenant=...),
    ("no claims", "issuer", lambda forge: forge.token({})),
]

TYPES: list[Case] = [
    *(
        claims(f"{name} {label}", **{name: value})
        for name in ("exp", "iat", "nbf")
        for label, value in {
            "null": None,
            "a list": [1],
            "an object": {},
            "a word": "tomorrow",
        }.items()
    ),
    claims("exp true: the library takes it for 1", "expired", exp=True),
    claims("iat true", iat=True),
    claims("nbf true", nbf=True),
    claims("nbf a float", nbf=1.5),
    at("exp a string of digits", "claims", lambda now: {"exp": str(now + 600)}),
    at("iat a string of digits", "claims", lambda now: {"iat": str(now)}),
    at("nbf a string of digits", "claims", lambda now: {"nbf": str(now)}),
    at("exp a float", "claims", lambda now: {"exp": now + 600.0}),
    at("iat a float", "claims", lambda now: {"iat": float(now)}),
    claims("exp Infinity", "malformed", exp=float("inf")),
    claims("exp NaN", "malformed", exp=float("nan")),
    claims("iat Infinity", "malformed", iat=float("inf")),
    raw_claims("exp 1e999", "malformed", member('"nbf":1e999')),
    claims("exp beyond int64", "malformed", exp=10**30),
    claims("sub a number", sub=7),
    claims("sub null", sub=None),
    claims("sub a list", sub=["alice"]),
    claims("sub empty", sub=""),
    claims("sub of 257 characters", sub="s" * 257),
    claims("iss a list", "issuer", iss=["http://127.0.0.1"]),
    ("iss a list of the right one", "issuer", lambda forge: forge.token(forge.claims(iss=[forge.issuer]))),
    claims("iss null", "issuer", iss=None),
    claims("iss an object", "issuer", iss={}),
    claims("aud null", aud=None),
    claims("aud a number", aud=1),
    claims("aud an object", aud={"https://waystation.test": 1}),
    claims("aud with a number in the list", aud=["https://waystation.test", 1]),
    claims("aud an empty list", aud=[]),
    claims("scope a list", scope=["tasks:read"]),
    claims("scope null", scope=None),
    claims("agents a string", agents="stock"),
    claims("agents an object", agents={"stock": 1}),
    claims("agents of numbers", agents=[1]),
    claims("agents null", agents=None),
    claims("jti a number", jti=1),
]

TIMES: list[Case] = [
    at("expired", "expired", lambda now: {"iat": now - 700, "exp": now - 100}),
    at("expired 30 s ago: the end of the leeway", "expired", lambda now: {"iat": now - 700, "exp": now - 30}),
    claims("exp zero", "expired", exp=0),
    claims("exp negative", "expired", exp=-1),
    at("issued in 30 years", "claims", lambda now: {"iat": now + 30 * 365 * DAY, "exp": now + 30 * 365 * DAY + 60}),
    at("issued in a minute", "claims", lambda now: {"iat": now + 60}),
    at("not before a minute from now", "claims", lambda now: {"nbf": now + 60}),
    at("lives for 24 h and a second", "claims", lambda now: {"exp": now + DAY + 1}),
    at("lives for a year", "claims", lambda now: {"exp": now + 365 * DAY}),
    claims("issued long ago, lives too long", iat=0),
    at("expires when it is issued", "claims", lambda now: {"iat": now + 10, "exp": now + 10}),
]

WHO: list[Case] = [
    claims("an unknown issuer", "issuer", iss="https://evil.test"),
    ("the issuer with a slash", "issuer", lambda forge: forge.token(forge.claims(iss=forge.issuer + "/"))),
    ("the issuer in capitals", "issuer", lambda forge: forge.token(forge.claims(iss=forge.issuer.upper()))),
    ("the issuer and a NUL", "malformed", lambda forge: forge.token(forge.claims(iss=forge.issuer + "\0"))),
    claims("the dev issuer", "issuer", iss="waystation-dev"),
    claims("another audience", aud="https://elsewhere.test"),
    claims("a list without our audience", aud=["https://elsewhere.test"]),
    claims("a part of our audience", aud="https://waystation"),
    claims("our audience and more", aud="https://waystation.test/"),
    claims("an ID token", at_hash="x"),
    claims("a foreign tenant", "tenant", tenant="b"),
    claims("no such tenant", "tenant", tenant="z"),
    claims("tenant empty", "tenant", tenant=""),
    claims("tenant null", "tenant", tenant=None),
    claims("tenant a list", "tenant", tenant=["a"]),
    claims("tenant in capitals", "tenant", tenant="A"),
    claims("tenant with a newline", "tenant", tenant="a\n"),
    claims("tenant with a comma", "tenant", tenant="a,b"),
    claims("tenant too long", "tenant", tenant="a" * 64),
]

FORMS: list[Case] = [
    ("empty", "malformed", lambda _: ""),
    ("one segment", "malformed", lambda _: "abc"),
    ("three dots", "malformed", lambda _: "..."),
    cut("two segments", "malformed", lambda token: token.rpartition(".")[0]),
    cut("no signature", "malformed", lambda token: token.rpartition(".")[0] + "."),
    cut("four segments", "malformed", lambda token: token + ".e30"),
    cut("five segments, a JWE", "malformed", lambda token: token + ".e30.e30"),
    cut("padded", "malformed", lambda token: token + "=="),
    cut("a space inside", "malformed", lambda token: token.replace(".", ". ", 1)),
    cut("a newline behind", "malformed", lambda token: token + "\n"),
    cut("two tokens", "malformed", lambda token: f"{token} {token}"),
    cut("quoted", "malformed", lambda token: f'"{token}"'),
    cut("the standard base64 alphabet", "malformed", lambda token: token[:-1] + "+"),
    cut("not ASCII", "malformed", lambda token: token[:-1] + "é"),
    cut("a lone surrogate", "malformed", lambda token: token[:-1] + "\ud800"),
    cut("full-width letters", "malformed", lambda token: token[:-1] + "Ａ"),
    ("8,193 bytes", "malformed", lambda forge: long_token(forge, 8193)),
    ("a header that is not JSON", "malformed", lambda forge: forge.token(header=b"RS256")),
    ("a header of one impossible character", "malformed", lambda forge: "a." + forge.token().partition(".")[2]),
    ("a header that is a list", "malformed", lambda forge: forge.token(header=b'["RS256"]')),
    ("a deep header", "malformed", lambda forge: forge.token(header=b'{"x":' * 500 + b"1" + b"}" * 500)),
    raw_header("a second alg", member('"alg":"none"')),
    raw_header("a second kid", member('"kid":"rsa"')),
    raw_header("NaN in the header", member('"x":NaN')),
    ("claims that are a list", "malformed", lambda forge: forge.token(b"[]")),
    ("claims that are a string", "malformed", lambda forge: forge.token(b'"iss"')),
    ("claims that are null", "malformed", lambda forge: forge.token(b"null")),
    ("claims that are not JSON", "malformed", lambda forge: forge.token(b"iss=x")),
    ("claims in UTF-16", "malformed", lambda forge: forge.token(json.dumps(forge.claims()).encode("utf-16"))),
    (
        "claims with a BOM",
        "malformed",
        lambda forge: forge.token(b"\xef\xbb\xbf" + json.dumps(forge.claims()).encode()),
    ),
    ("deep claims", "malformed", lambda forge: forge.token(forge.claims(x=json.loads("[" * 70 + "]" * 70)))),
    raw_claims("a second iss", "malformed", member('"iss":"https://evil.test"')),
    raw_claims("a second tenant", "malformed", member('"tenant":"b"')),
    raw_claims("a second exp", "malformed", member('"exp":1')),
    raw_claims("a second sub by an escape", "malformed", member(r'"s\u0075b":"mallory"')),
    claims("NUL in sub", "malformed", sub="a\0"),
    raw_claims("a lone surrogate in sub", "malformed", lambda text: text.replace("alice", r"\ud800")),
    raw_claims("a raw surrogate in sub", "malformed", lambda text: text.replace("alice", "\ud800")),
]


def long_token(forge: Forge, length: int) -> str:
    """A token of exactly ``length`` bytes, good but for that."""
    spare = (length - len(forge.token())) * 3 // 4
    candidates = (
        forge.token(forge.claims(x="x" * (spare - less)), forge.header(x="x" * more))
        for less in range(20)
        for more in range(4)
    )
    return next(token for token in candidates if len(token) == length)


SIGNATURES: list[Case] = [
    cut("another payload", "signature", swap_payload),
    cut("a flipped bit", "signature", flip_last_byte),
    cut("a signature cut short", "signature", lambda token: token[:-4]),
    cut("a signature with bytes behind", "signature", lambda token: token + "AAAA"),
    ("another key under the right kid", "signature", lambda forge: forge.token(sign=rs256(rsa_key("evil")))),
    ("a hash for a signature", "signature", lambda forge: forge.token(sign=hs256(b""))),
    ("PSS under RS256", "signature", lambda forge: forge.token(sign=pss)),
    ("SHA-512 under RS256", "signature", lambda forge: forge.token(sign=sha512)),
    ("an RSA signature of zeros", "signature", lambda forge: forge.token(sign=lambda _: bytes(256))),
    ("an RSA signature of one", "signature", lambda forge: forge.token(sign=lambda _: bytes(255) + b"\x01")),
    es_signed("ES256 by another key", es256(ec_key("evil"))),
    es_signed("ES256 by a P-384 key", es256(ec_key("evil", ec.SECP384R1))),
    es_signed("ES256 in DER", der),
    es_signed("r = s = 0", lambda _: bytes(64)),
    es_signed("r = s = 1", lambda _: (bytes(31) + b"\x01") * 2),
    es_signed("an empty half", lambda data: es256(ec_key("ec"))(data)[:32]),
    ("an HMAC under RS256", "signature", lambda forge: forge.token(sign=hs256(public(serialization.Encoding.PEM)))),
]

CASES = {
    f"{group}: {name}": (reason, make)
    for group, cases in {
        "algorithm": ALGORITHMS,
        "header": HEADERS,
        "required": REQUIRED,
        "type": TYPES,
        "time": TIMES,
        "who": WHO,
        "form": FORMS,
        "signature": SIGNATURES,
    }.items()
    for name, reason, make in cases
}


@pytest.mark.parametrize(("reason", "make"), CASES.values(), ids=CASES.keys())
async def test_is_refused(trust: Verification, forge: Forge, reason: str, make: Callable[[Forge], str]) -> None:
    assert reason in FAILURE_REASONS
    assert await trust.refusal(f"Bearer {make(forge)}") == reason


def test_the_table_is_long() -> None:
    assert len(CASES) >= 150


async def test_the_same_tokens_without_their_fault_pass(trust: Verification, forge: Forge) -> None:
    """What the table varies is good: otherwise its rows would prove nothing."""
    await trust.caller(forge.token())
    await trust.caller(forge.token(header=forge.header(alg="ES256", kid="ec"), sign=es256(ec_key("ec"))))
    await trust.caller(long_token(forge, 8192))
    await trust.caller(forge.token(json.dumps(forge.claims()).encode()))
    assert trust.failures == []


@pytest.mark.parametrize(
    ("authorization", "reason"),
    [
        (None, "missing"),
        ("", "missing"),
        ("Basic YTpi", "scheme"),
        ("Token abc", "scheme"),
        ("abc", "scheme"),
        ("Bearer\tabc", "scheme"),
        ("Bearer: abc", "scheme"),
        ("Bearer", "malformed"),
        ("Bearer ", "malformed"),
        ("Bearer Bearer", "malformed"),
    ],
)
async def test_headers_that_are_no_bearer_token(trust: Verification, authorization: str | None, reason: str) -> None:
    assert await trust.refusal(authorization) == reason
