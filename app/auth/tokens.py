"""The one door for bearer tokens, and the only importer of jose. Called by the transports for every request.

security.md, Tokens, names what the library accepts that we must not; hence the order here: form, strict header, strict
claims, the issuer by exact lookup, the one key by (issuer, kid), the library's call with a list of one algorithm, and
our own checks of every claim we use. Whatever goes wrong is one and the same 401; the reason is only counted.
"""

import base64
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from jose import jwk, jwt
from jose.backends.base import Key
from jose.exceptions import ExpiredSignatureError, JOSEError, JWTClaimsError

from app.auth import scopes
from app.auth.accepted import Accepted, AcceptedTokens
from app.auth.caller import Caller
from app.auth.issuers import DEV_AUDIENCE, DEV_ISSUER, TENANT, Claims, Policy, policies
from app.auth.jwks import MAX_KID_CHARACTERS, VerificationKey
from app.auth.keys import KeyStore
from app.clock import Clock
from app.errors import ParseError, Unauthenticated, Unavailable
from app.protocol import strict_json
from app.settings import MIN_SECRET_BYTES, Settings

MAX_TOKEN_BYTES: Final = 8192
MAX_LIFETIME_SECONDS: Final = 24 * 3600
LEEWAY_SECONDS: Final = 30
MAX_SUBJECT_CHARACTERS: Final = 256

FAILURE_REASONS: Final = (
    "missing",
    "scheme",
    "malformed",
    "header",
    "algorithm",
    "issuer",
    "type",
    "kid",
    "unknown_key",
    "keys_unavailable",
    "signature",
    "expired",
    "claims",
    "tenant",
    "error",
)
"""All values that ``on_failure`` is called with."""

_COMPACT_JWS = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")
_REFUSED_HEADERS = frozenset({"crit", "b64", "jku", "x5u", "jwk", "x5c", "zip", "enc"})
# The library ignores what it does not know: this constant and its one use are the only place for options.
_OPTIONS: Final[dict[str, object]] = {
    "require_exp": True,
    "require_iat": True,
    "require_aud": True,
    "require_iss": True,
    "require_sub": True,
    "leeway": LEEWAY_SECONDS,
}


class _Refused(Exception):
    """The token is not accepted; ``reason`` is one of FAILURE_REASONS."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class TokenVerifier:
    """Turns an ``Authorization`` header into a Caller.

    ``clock`` must tell the real time: the library compares with the system's clock too. ``on_failure`` counts refused
    credentials by reason.
    """

    def __init__(self, settings: Settings, keys: KeyStore, clock: Clock, on_failure: Callable[[str], None]) -> None:
        """Raises ValueError for issuers that cannot work and for a dev secret that is a key of another kind."""
        self._policies = policies(settings)
        self._algorithms = frozenset[str]().union(*(policy.algorithms for policy in self._policies.values()))
        self._keys = keys
        self._clock = clock
        self._on_failure = on_failure
        secret = settings.dev_secret
        self._accepted = AcceptedTokens()
        self._dev_key = _dev_key(secret.get_secret_value()) if settings.auth_mode == "dev" and secret else None

    async def verify(self, authorization: str | None) -> Caller:
        """The caller that the header ``Bearer <token>`` proves.

        Raises Unauthenticated, the same for every cause, or Unavailable when the issuer's keys cannot be had.
        """
        try:
            return await self._accept(_bearer(authorization))
        except _Refused as refused:
            reason = refused.reason
        except Unavailable:
            self._on_failure("keys_unavailable")
            raise
        except Exception:
            # A token can break a library in ways nobody has thought of; none of them is the caller's to see.
            reason = "error"
        self._on_failure(reason)
        raise Unauthenticated

    async def _accept(self, token: str) -> Caller:
        if len(token) > MAX_TOKEN_BYTES or not token.isascii():
            raise _Refused("malformed")
        known = self._accepted.get(token)
        if known is not None and known.key is await self._current(known):
            if known.caller.expires_at <= self._clock() - LEEWAY_SECONDS:
                raise _Refused("expired")
            return known.caller
        header, claims = _parse(token)
        policy = self._policy(header, claims)
        key = await self._find_key(policy, header)
        verified = _decode(token, *self._library_key(key), policy)
        caller = _caller(verified, policy, self._clock())
        self._accepted.put(token, Accepted(caller, policy.issuer, key))
        return caller

    async def _current(self, known: Accepted) -> VerificationKey | None:
        """The key that a remembered token's issuer publishes under its kid now."""
        return await self._keys.find(known.issuer, known.key.kid) if known.key is not None else None

    def _policy(self, header: Claims, claims: Claims) -> Policy:
        """The issuer's policy, if the header is one it admits. Nothing is believed yet: the claims are unverified."""
        if not _REFUSED_HEADERS.isdisjoint(header):
            raise _Refused("header")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise _Refused("algorithm")
        issuer = claims.get("iss")
        policy = self._policies.get(issuer) if isinstance(issuer, str) else None
        if policy is None:
            raise _Refused("issuer")
        if algorithm not in policy.algorithms:
            raise _Refused("algorithm")
        kind = header.get("typ")
        if not isinstance(kind, str) or kind.lower() not in policy.types:
            raise _Refused("type")
        return policy

    async def _find_key(self, policy: Policy, header: Claims) -> VerificationKey | None:
        """The one key that may verify this token; None for a dev token."""
        kid = header.get("kid")
        if policy.issuer == DEV_ISSUER:
            if "kid" in header:
                raise _Refused("kid")
            return None
        if not isinstance(kid, str) or not 1 <= len(kid) <= MAX_KID_CHARACTERS:
            raise _Refused("kid")
        key = await self._keys.find(policy.issuer, kid)
        if key is None:
            raise _Refused("unknown_key")
        if key.algorithm != header["alg"]:
            raise _Refused("algorithm")
        return key

    def _library_key(self, key: VerificationKey | None) -> tuple[Key, str]:
        if key is None:
            assert self._dev_key is not None, "only dev mode has an issuer without a key set"
            return self._dev_key, "HS256"
        # The type stubs omit what the backend takes as it is: a key object, built and checked when the set was loaded.
        return jwk.construct(cast("Any", key.public_key), key.algorithm), key.algorithm


def mint_dev(secret: str, *, tenant: str, subject: str, scope: str, agents: Sequence[str], ttl: int, now: float) -> str:
    """A dev mode token, valid from ``now`` for ``ttl`` seconds. Raises ValueError for what ``verify`` would refuse."""
    if not TENANT.fullmatch(tenant):
        raise ValueError(f"tenant {tenant!r} does not match ^{TENANT.pattern}$")
    if not 1 <= len(subject) <= MAX_SUBJECT_CHARACTERS:
        raise ValueError(f"the subject has 1 to {MAX_SUBJECT_CHARACTERS} characters")
    if not 1 <= ttl <= MAX_LIFETIME_SECONDS:
        raise ValueError(f"the lifetime is 1 to {MAX_LIFETIME_SECONDS} seconds")
    scopes.expand(scope.split())
    claims: dict[str, object] = {
        "iss": DEV_ISSUER,
        "aud": DEV_AUDIENCE,
        "sub": subject,
        "tenant": tenant,
        "scope": scope,
        "iat": int(now),
        "exp": int(now) + ttl,
    }
    if agents:
        claims["agents"] = list(agents)
    return jwt.encode(claims, _dev_key(secret), "HS256", {"typ": "at+jwt"})


def _bearer(authorization: str | None) -> str:
    if not authorization:
        raise _Refused("missing")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise _Refused("scheme")
    return token.strip(" ")


def _parse(token: str) -> tuple[Claims, Claims]:
    """Header and claims, each strictly read and not yet verified."""
    segments = _COMPACT_JWS.fullmatch(token)
    if segments is None:
        raise _Refused("malformed")
    try:
        header, claims = (
            strict_json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
            for segment in segments.groups()
        )
    except (ValueError, ParseError):
        raise _Refused("malformed") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise _Refused("malformed")
    return cast("Claims", header), cast("Claims", claims)


def _decode(token: str, key: Key, algorithm: str, policy: Policy) -> Claims:
    """The one call into the library."""
    try:
        return jwt.decode(token, key, [algorithm], _OPTIONS, policy.audience, policy.issuer)
    except ExpiredSignatureError:
        raise _Refused("expired") from None
    except JWTClaimsError:
        raise _Refused("claims") from None
    except JOSEError as error:
        # JWTError wraps the signature's error, or names a claim that is missing.
        raise _Refused("signature" if error.args and isinstance(error.args[0], JOSEError) else "claims") from None
    except (TypeError, OverflowError, AttributeError, RecursionError):
        # What the library lets through for claims of the wrong type.
        raise _Refused("claims") from None


def _caller(claims: Claims, policy: Policy, now: float) -> Caller:
    """The verified claims as a Caller: own checks, for the library lets strings, floats and far dates pass."""
    exp, iat, nbf = _seconds(claims, "exp"), _seconds(claims, "iat"), _seconds(claims, "nbf", absent=0)
    if exp <= now - LEEWAY_SECONDS:
        raise _Refused("expired")
    if iat > now + LEEWAY_SECONDS or nbf > now + LEEWAY_SECONDS or not 0 < exp - iat <= MAX_LIFETIME_SECONDS:
        raise _Refused("claims")
    subject, scope, agents = claims.get("sub"), claims.get("scope", ""), claims.get("agents", [])
    if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT_CHARACTERS or not isinstance(scope, str):
        raise _Refused("claims")
    if not isinstance(agents, list) or not all(isinstance(agent, str) for agent in cast("list[object]", agents)):
        raise _Refused("claims")
    tenant = policy.tenant_of(claims)
    if tenant is None:
        raise _Refused("tenant")
    return Caller(
        tenant=tenant,
        subject=subject,
        scopes=scopes.parse(scope) & policy.scopes,
        agents=frozenset(cast("list[str]", agents)),
        expires_at=float(exp),
    )


def _seconds(claims: Claims, name: str, absent: int | None = None) -> int:
    value = claims.get(name, absent)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Refused("claims")
    return value


def _dev_key(secret: str) -> Key:
    """Raises ValueError for a short secret, and for a PEM or SSH public key, which everybody knows."""
    if len(secret.encode()) < MIN_SECRET_BYTES:
        raise ValueError(f"the dev secret must have at least {MIN_SECRET_BYTES} bytes")
    try:
        return jwk.construct(secret, "HS256")
    except JOSEError as error:
        raise ValueError(f"the dev secret: {error}") from error
