"""What a token says, before and after its signature is known to be good: its form, and our own check of every claim.

Called by ``auth.tokens``, which knows the library; nothing here believes or verifies a signature.
"""

import base64
import re
from typing import Final, cast

from app.auth import scopes
from app.auth.caller import Caller
from app.auth.issuers import Claims, Policy
from app.errors import ParseError
from app.protocol import strict_json

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
"""All reasons a credential is refused for. They are counted, never told."""

_COMPACT_JWS = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")


class Refused(Exception):
    """The token is not accepted; ``reason`` is one of FAILURE_REASONS."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def check_form(token: str) -> None:
    """Raise Refused for what is too long, or of other characters than a token."""
    if len(token) > MAX_TOKEN_BYTES or not token.isascii():
        raise Refused("malformed")


def parse(token: str) -> tuple[Claims, Claims]:
    """Header and claims, each strictly read and not yet verified. Raises Refused."""
    segments = _COMPACT_JWS.fullmatch(token)
    if segments is None:
        raise Refused("malformed")
    try:
        header, claims = (
            strict_json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
            for segment in segments.groups()
        )
    except (ValueError, ParseError):
        raise Refused("malformed") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise Refused("malformed")
    return cast("Claims", header), cast("Claims", claims)


def caller_of(claims: Claims, policy: Policy, now: float) -> Caller:
    """The verified claims as a Caller: own checks, for the library lets strings, floats and far dates pass.

    Raises Refused.
    """
    exp, iat, nbf = _seconds(claims, "exp"), _seconds(claims, "iat"), _seconds(claims, "nbf", absent=0)
    if exp <= now - LEEWAY_SECONDS:
        raise Refused("expired")
    if iat > now + LEEWAY_SECONDS or nbf > now + LEEWAY_SECONDS or not 0 < exp - iat <= MAX_LIFETIME_SECONDS:
        raise Refused("claims")
    subject, scope, agents = claims.get("sub"), claims.get("scope", ""), claims.get("agents", [])
    if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT_CHARACTERS or not isinstance(scope, str):
        raise Refused("claims")
    if not isinstance(agents, list) or not all(isinstance(agent, str) for agent in cast("list[object]", agents)):
        raise Refused("claims")
    tenant = policy.tenant_of(claims)
    if tenant is None:
        raise Refused("tenant")
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
        raise Refused("claims")
    return value
