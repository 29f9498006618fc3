"""Reads a JSON Web Key Set (RFC 7517) into verification keys. Pure; called by ``auth.keys`` with each fetched set.

A key that is not usable for verifying RS256 or ES256 is left out (sets legitimately hold encryption keys and other
algorithms); a document that is not a key set, or is too large a one, is refused as a whole.
"""

import base64
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from app.errors import ParseError
from app.protocol import strict_json

MAX_KEYS: Final = 64
MAX_KID_CHARACTERS: Final = 256
_RSA_BITS = range(2048, 8192 + 1)
_P256_BYTES = 32
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_PRIVATE_MEMBERS = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")


class InvalidKeySet(Exception):
    """The document is not a JSON Web Key Set; the text is for logs."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key and the one JWS algorithm it may verify."""

    kid: str
    algorithm: str
    public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey


def parse_jwks(raw: bytes) -> dict[str, VerificationKey]:
    """The usable keys of a set by kid (possibly none).

    Two usable keys under one kid are both left out: nothing tells which one is meant. Raises InvalidKeySet.
    """
    try:
        document = strict_json.loads(raw)
    except ParseError as error:
        raise InvalidKeySet(error.message) from error
    members = cast("dict[str, object]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list):
        raise InvalidKeySet('no "keys" list')
    entries = cast("list[object]", members)
    if len(entries) > MAX_KEYS:
        raise InvalidKeySet(f"{len(entries)} keys, more than {MAX_KEYS}")
    usable = [key for entry in entries if (key := _load(entry)) is not None]
    uses = Counter(key.kid for key in usable)
    return {key.kid: key for key in usable if uses[key.kid] == 1}


def _load(entry: object) -> VerificationKey | None:
    """The key of one JWK, or None when it must not verify anything here."""
    if not isinstance(entry, dict):
        return None
    jwk = cast("dict[str, object]", entry)
    kid = jwk.get("kid")
    if not isinstance(kid, str) or not 1 <= len(kid) <= MAX_KID_CHARACTERS:
        return None
    # A set that shows a private key has given it away.
    if any(name in jwk for name in _PRIVATE_MEMBERS) or not _may_verify(jwk):
        return None
    try:
        if jwk.get("kty") == "RSA" and jwk.get("alg", "RS256") == "RS256":
            return VerificationKey(kid, "RS256", _rsa(jwk))
        if jwk.get("kty") == "EC" and jwk.get("alg", "ES256") == "ES256" and jwk.get("crv") == "P-256":
            return VerificationKey(kid, "ES256", _p256(jwk))
    except ValueError:
        return None
    return None


def _may_verify(jwk: Mapping[str, object]) -> bool:
    """RFC 7517, 4.2 and 4.3: both members are optional, and each that is there must allow verification."""
    operations = jwk.get("key_ops", ["verify"])
    return jwk.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations


def _rsa(jwk: Mapping[str, object]) -> rsa.RSAPublicKey:
    modulus, exponent = _octets(jwk.get("n")), _octets(jwk.get("e"))
    key = rsa.RSAPublicNumbers(int.from_bytes(exponent), int.from_bytes(modulus)).public_key()
    if key.key_size not in _RSA_BITS:
        raise ValueError("RSA key size")
    return key


def _p256(jwk: Mapping[str, object]) -> ec.EllipticCurvePublicKey:
    x, y = _octets(jwk.get("x")), _octets(jwk.get("y"))
    if len(x) != _P256_BYTES or len(y) != _P256_BYTES:
        raise ValueError("RFC 7518, 6.2.1.2: a coordinate has the full length of the field")
    return ec.EllipticCurvePublicNumbers(int.from_bytes(x), int.from_bytes(y), ec.SECP256R1()).public_key()


def _octets(value: object) -> bytes:
    if not isinstance(value, str) or not _BASE64URL.fullmatch(value):
        raise ValueError("not base64url")
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
