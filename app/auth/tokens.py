"""The one door for bearer tokens, and the only importer of jose. Called by the transports for every request.

security.md, Tokens, names what the library accepts that we must not; hence the order here: form, strict header, strict
claims, the issuer by exact lookup, the one key by (issuer, kid), the library's call with a list of one algorithm, and
our own checks of every claim we use. Whatever goes wrong is one and the same 401; the reason is only counted.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from jose import jwk, jwt
from jose.backends.base import Key
from jose.exceptions import ExpiredSignatureError, JOSEError, JWTClaimsError

from app.auth import scopes
from app.auth.accepted import Accepted, AcceptedTokens
from app.auth.caller import Caller
from app.auth.claims import (
    LEEWAY_SECONDS,
    MAX_LIFETIME_SECONDS,
    MAX_SUBJECT_CHARACTERS,
    Refused,
    caller_of,
    check_form,
    parse,
)
from app.auth.issuers import DEV_AUDIENCE, DEV_ISSUER, TENANT, Claims, Policy, policies
from app.auth.jwks import MAX_KID_CHARACTERS, VerificationKey
from app.auth.keys import KeyStore
from app.clock import Clock
from app.errors import Unauthenticated, Unavailable
from app.settings import MIN_SECRET_BYTES, Settings

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

log = logging.getLogger(__name__)


class TokenVerifier:
    """Turns an ``Authorization`` header into a Caller.

    ``clock`` must tell the real time: the library compares with the system's clock too. ``on_failure`` counts refused
    credentials by reason.
    """

    def __init__(self, settings: Settings, keys: KeyStore, clock: Clock, on_failure: Callable[[str], None]) -> None:
        """Raises ValueError for issuers that cannot work and for a dev secret that is a key of another kind."""
        self._policies = policies(settings)
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
        except Refused as refused:
            reason = refused.reason
        except Unavailable:
            self._on_failure("keys_unavailable")
            raise
        except Exception as error:
            # A token can break a library in ways nobody has thought of. Neither caller nor log sees what it says.
            log.warning("a token's check ended with %s", type(error).__name__)
            reason = "error"
        self._on_failure(reason)
        raise Unauthenticated

    async def _accept(self, token: str) -> Caller:
        check_form(token)
        known = self._accepted.get(token)
        if known is not None and known.key is await self._current(known):
            if known.caller.expires_at <= self._clock() - LEEWAY_SECONDS:
                raise Refused("expired")
            return known.caller
        header, claims = parse(token)
        policy = self._policy(header, claims)
        key = await self._find_key(policy, header)
        verified = _decode(token, *self._library_key(key), policy)
        caller = caller_of(verified, policy, self._clock())
        self._accepted.put(token, Accepted(caller, policy.issuer, key))
        return caller

    async def _current(self, known: Accepted) -> VerificationKey | None:
        """The key that a remembered token's issuer publishes under its kid now."""
        return await self._keys.find(known.issuer, known.key.kid) if known.key is not None else None

    def _policy(self, header: Claims, claims: Claims) -> Policy:
        """The issuer's policy, if the header is one it admits. Nothing is believed yet: the claims are unverified."""
        if not _REFUSED_HEADERS.isdisjoint(header):
            raise Refused("header")
        issuer = claims.get("iss")
        policy = self._policies.get(issuer) if isinstance(issuer, str) else None
        if policy is None:
            raise Refused("issuer")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in policy.algorithms:
            raise Refused("algorithm")
        kind = header.get("typ")
        if not isinstance(kind, str) or kind.lower() not in policy.types:
            raise Refused("type")
        return policy

    async def _find_key(self, policy: Policy, header: Claims) -> VerificationKey | None:
        """The one key that may verify this token; None for a dev token."""
        kid = header.get("kid")
        if policy.issuer == DEV_ISSUER:
            if "kid" in header:
                raise Refused("kid")
            return None
        if not isinstance(kid, str) or not 1 <= len(kid) <= MAX_KID_CHARACTERS:
            raise Refused("kid")
        key = await self._keys.find(policy.issuer, kid)
        if key is None:
            raise Refused("unknown_key")
        if key.algorithm != header["alg"]:
            raise Refused("algorithm")
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
        raise Refused("missing")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise Refused("scheme")
    return token.strip(" ")


def _decode(token: str, key: Key, algorithm: str, policy: Policy) -> Claims:
    """The one call into the library."""
    try:
        return jwt.decode(token, key, [algorithm], _OPTIONS, policy.audience, policy.issuer)
    except ExpiredSignatureError:
        raise Refused("expired") from None
    except JWTClaimsError:
        raise Refused("claims") from None
    except JOSEError as error:
        # JWTError wraps the signature's error, or names a claim that is missing.
        raise Refused("signature" if error.args and isinstance(error.args[0], JOSEError) else "claims") from None
    except (TypeError, OverflowError, AttributeError, RecursionError):
        # What the library lets through for claims of the wrong type.
        raise Refused("claims") from None


def _dev_key(secret: str) -> Key:
    """Raises ValueError for a short secret, and for a PEM or SSH public key, which everybody knows."""
    if len(secret.encode()) < MIN_SECRET_BYTES:
        raise ValueError(f"the dev secret must have at least {MIN_SECRET_BYTES} bytes")
    try:
        return jwk.construct(secret, "HS256")
    except JOSEError as error:
        raise ValueError(f"the dev secret: {error}") from error
