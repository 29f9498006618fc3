"""Dev tokens, signed by hand: a test's tokens must not come from the code under test. Called by tests and fixtures."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from typing import Any

DEV_SECRET = "waystation-tests-dev-secret-of-more-than-32-bytes"
CLIENT_SCOPE = "tasks:read tasks:write tasks:cancel"


def mint(
    tenant: str,
    subject: str = "u1",
    scope: str = CLIENT_SCOPE,
    agents: Sequence[str] | None = None,
    *,
    seconds: int = 3600,
    secret: str = DEV_SECRET,
    **claims: Any,
) -> str:
    """A bearer token as native-api.md describes it, valid for ``seconds``; ``claims`` are added or replace its own."""
    now = int(time.time())
    content: dict[str, Any] = {
        "iss": "waystation-dev",
        "aud": "waystation",
        "sub": subject,
        "iat": now,
        "exp": now + seconds,
        "tenant": tenant,
        "scope": scope,
    }
    if agents is not None:
        content["agents"] = list(agents)
    signed = f"{_segment({'alg': 'HS256', 'typ': 'JWT'})}.{_segment(content | claims)}"
    signature = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{_base64url(signature)}"


def worker_token(tenant: str, *agents: str, subject: str = "w1") -> str:
    """A token that may lease for ``agents``."""
    return mint(tenant, subject, "worker:lease", agents)


def bearer(token: str) -> dict[str, str]:
    """The Authorization header of a token."""
    return {"Authorization": f"Bearer {token}"}


def _segment(value: dict[str, Any]) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
