"""Signatures of webhook deliveries, by the Standard Webhooks specification. Called by the webhook sender.

Receivers check them with any Standard Webhooks library, and refuse timestamps more than 300 s away from their clock.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = range(24, 65)
"""How long the specification lets a secret be, in bytes before base64."""


def sign(secrets: Sequence[str], webhook_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of one attempt: ``webhook-id``, ``webhook-timestamp`` (Unix seconds) and ``webhook-signature``.

    ``secrets`` are ``whsec_<base64>``, of which each gives a signature: while one replaces another, receivers that know
    either are content. ``webhook_id`` is the same for all attempts of a delivery. Raises ValueError for a bad secret.
    """
    if not secrets:
        raise ValueError("at least one secret")
    signed = b"%b.%d.%b" % (webhook_id.encode(), timestamp, body)
    signatures = [base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode() for secret in secrets]
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or len(key) not in SECRET_BYTES:
        # The secret itself must not get into a log.
        raise ValueError(f"a signing secret is {PREFIX} and 24 to 64 bytes in base64")
    return key
