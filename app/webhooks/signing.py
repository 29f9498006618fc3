"""Signatures of webhook deliveries, by the Standard Webhooks specification. Called by ``webhooks.notify``.

Receivers check them with any Standard Webhooks library, which refuses timestamps more than 300 s away from its clock.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence


def headers(keys: Sequence[bytes], webhook_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of one attempt: ``webhook-id``, ``webhook-timestamp`` (Unix seconds) and ``webhook-signature``.

    ``keys`` are raw, what follows ``whsec_`` being their base64. Each gives a signature: while one replaces another,
    receivers that know either are content. ``webhook_id`` is the same for all attempts.
    """
    signed = b"%b.%d.%b" % (webhook_id.encode(), timestamp, body)
    signatures = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys]
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
