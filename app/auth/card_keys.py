"""The keys that sign agent cards (A2A v1.0 §8.4): ES256, derived from SECRET_KEY, so that all replicas are alike.

Nothing is stored and nothing is fetched: each entry of SECRET_KEY gives one key pair, the first signs, all are
published. A new entry is put at the end first and moved to the front when verifiers have seen it (their JWKS are
cached). Called by ``operations.served_cards``.
"""

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.protocol.canonical import canonical

ALGORITHM: Final = "ES256"
_PURPOSE: Final = b"waystation agent card signature"
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of P-256 (SEC 2 v2, 2.4.2)."""
_SEED_BYTES: Final = 40
"""64 bits more than the order has, against a bias in the remainder (FIPS 186-5, A.2.1)."""
_COORDINATE_BYTES: Final = 32


class CardKeys:
    """``secrets`` are ``settings.secret_keys()``. Raises UnsupportedAlgorithm where OpenSSL is older than 3.2."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        keys = [_derive(secret) for secret in dict.fromkeys(secrets)]
        self._key = keys[0]
        # RFC 6979: equal cards have equal signatures, and so equal ETags on all replicas
        self._algorithm = ec.ECDSA(SHA256(), deterministic_signing=True)
        jwks = [_jwk(key.public_key()) for key in keys]
        self._kid: str = jwks[0]["kid"]
        self.jwks: dict[str, Any] = {"keys": jwks}
        """The public keys as a JWK Set (RFC 7517), the signing one first."""

    def sign(self, payload: bytes, jku: str) -> dict[str, str]:
        """An AgentCardSignature over ``payload``; ``jku`` is where the JWKS is. Deterministic."""
        header = {"alg": ALGORITHM, "jku": jku, "kid": self._kid, "typ": "JOSE"}
        protected = _base64url(canonical(header))
        der = self._key.sign(f"{protected}.{_base64url(payload)}".encode(), self._algorithm)
        r, s = decode_dss_signature(der)
        return {"protected": protected, "signature": _base64url(_octets(r) + _octets(s))}


def _derive(secret: bytes) -> ec.EllipticCurvePrivateKey:
    seed = HKDF(SHA256(), _SEED_BYTES, salt=None, info=_PURPOSE).derive(secret)
    return ec.derive_private_key(int.from_bytes(seed) % (_ORDER - 1) + 1, ec.SECP256R1())


def _jwk(key: ec.EllipticCurvePublicKey) -> dict[str, Any]:
    """The public key as a JWK whose ``kid`` is its thumbprint (RFC 7638)."""
    numbers = key.public_numbers()
    required = {
        "crv": "P-256",
        "kty": "EC",
        "x": _base64url(_octets(numbers.x)),
        "y": _base64url(_octets(numbers.y)),
    }
    thumbprint = _base64url(hashlib.sha256(canonical(required)).digest())
    return {**required, "kid": thumbprint, "alg": ALGORITHM, "use": "sig"}


def _octets(number: int) -> bytes:
    return number.to_bytes(_COORDINATE_BYTES)


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
