"""A real OpenID provider on 127.0.0.1 and tokens signed by hand: the counterpart of ``auth.tokens`` and ``auth.keys``.

Neither uses the code under test, nor its JWT library: header and claims may be anything, and every signature is real.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

DISCOVERY = "/.well-known/openid-configuration"
JWKS = "/jwks"
AUDIENCE = "https://waystation.test"

Json = dict[str, Any]
Signer = Callable[[bytes], bytes]


def b64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def octets(number: int, length: int | None = None) -> str:
    return b64(number.to_bytes(length or (number.bit_length() + 7) // 8))


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """One key per name and test process: generating one takes a tenth of a second."""
    del name
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(name: str, curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    del name
    return ec.generate_private_key(curve())


def rsa_jwk(kid: str, key: rsa.RSAPrivateKey | None = None, /, **members: Any) -> Json:
    numbers = (key or rsa_key(kid)).public_key().public_numbers()
    return {"kty": "RSA", "kid": kid, "n": octets(numbers.n), "e": octets(numbers.e), **members}


def ec_jwk(kid: str, key: ec.EllipticCurvePrivateKey | None = None, /, **members: Any) -> Json:
    public = (key or ec_key(kid)).public_key()
    numbers, length = public.public_numbers(), (public.curve.key_size + 7) // 8
    curve = {256: "P-256", 384: "P-384"}[public.curve.key_size]
    point = {"x": octets(numbers.x, length), "y": octets(numbers.y, length)}
    return {"kty": "EC", "kid": kid, "crv": curve, **point, **members}


def rs256(key: rsa.RSAPrivateKey) -> Signer:
    return lambda data: key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def es256(key: ec.EllipticCurvePrivateKey) -> Signer:
    length = (key.curve.key_size + 7) // 8

    def sign(data: bytes) -> bytes:
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(length) + s.to_bytes(length)

    return sign


def hs256(secret: bytes) -> Signer:
    return lambda data: hmac.digest(secret, data, hashlib.sha256)


def jws(header: Json | bytes, claims: Json | bytes, sign: Signer) -> str:
    """A compact JWS of exactly these bytes (dicts are printed as JSON, NaN and all)."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims)]
    signed = ".".join(b64(part) for part in parts)
    return f"{signed}.{b64(sign(signed.encode()))}"


@dataclass
class Answer:
    """What the provider sends for a path; ``headers`` are whole lines."""

    body: bytes = b""
    status: int = 200
    headers: tuple[str, ...] = ()


@dataclass
class OidcServer:
    """An issuer with discovery and a key set. ``overrides`` replace its answers, ``requests`` counts them by path.

    While ``gate`` is not set, every request waits: tests see what happens meanwhile. ``seen`` is set by each request.
    """

    keys: list[Json] = field(default_factory=list)
    cache_control: str = ""
    overrides: dict[str, Answer] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    port: int = 0

    def __post_init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.seen = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Refuse connections from now on; ``up`` listens on the same port again."""
        if self._server is not None:
            self._server.close()
            for connection in list(self._open):
                connection.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    def answer(self, path: str) -> Answer:
        if path in self.overrides:
            return self.overrides[path]
        caching = (f"Cache-Control: {self.cache_control}",) if self.cache_control else ()
        if path == DISCOVERY:
            document = {"issuer": self.issuer, "jwks_uri": self.issuer + JWKS}
            return Answer(json.dumps(document).encode())
        if path == JWKS:
            return Answer(json.dumps({"keys": self.keys}).encode(), headers=caching)
        return Answer(status=404)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            self.requests[path] += 1
            self.seen.set()
            await self.gate.wait()
            answer = self.answer(path)
            lines = [f"HTTP/1.1 {answer.status} X", "Connection: close", *answer.headers]
            if not any(line.lower().startswith("transfer-encoding") for line in lines):
                lines.append(f"Content-Length: {len(answer.body)}")
            writer.write("\r\n".join([*lines, "", ""]).encode() + answer.body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()


@dataclass
class Forge:
    """Makes tokens for one issuer: by default good ones, RS256 under kid ``rsa``; every part may be replaced."""

    issuer: str
    tenant: str = "a"
    now: int = field(default_factory=lambda: int(time.time()))

    def claims(self, **changes: Any) -> Json:
        """Good claims with ``changes``; a change to ``...`` leaves the claim out."""
        good = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "alice",
            "iat": self.now,
            "exp": self.now + 600,
            "tenant": self.tenant,
            "scope": "tasks:read tasks:write",
        }
        return {name: value for name, value in (good | changes).items() if value is not ...}

    def header(self, **changes: Any) -> Json:
        good = {"alg": "RS256", "typ": "at+jwt", "kid": "rsa"}
        return {name: value for name, value in (good | changes).items() if value is not ...}

    def token(
        self, claims: Json | bytes | None = None, header: Json | bytes | None = None, sign: Signer | None = None
    ) -> str:
        return jws(
            self.header() if header is None else header,
            self.claims() if claims is None else claims,
            sign or rs256(rsa_key("rsa")),
        )
