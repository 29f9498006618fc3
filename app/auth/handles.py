"""Signed opaque handles: what the server hands out and wants back unchanged, such as leaseIds and list cursors.

A handle is its content in JSON and a MAC, in URL-safe base64: readable by its holder, and made by this deployment only.
Called by the operations and the native transports.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final, cast

from app.protocol import strict_json

MAX_CHARACTERS: Final = 4096
"""Room for a contextId and a workerId of the greatest length that JSON escapes throughout (6 bytes a character)."""
# RFC 2104, section 5: half of the digest is enough, and leaseIds stand in URLs.
_MAC_BYTES = 16
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_PURPOSE = b"waystation handle"


class Handles:
    """Seals and opens handles. ``keys`` are ``settings.secret_keys()``: the first signs, all verify (rotation)."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("at least one key")
        # The same secrets serve other purposes; no two of them share a key.
        self._keys = [hmac.digest(key, _PURPOSE, hashlib.sha256) for key in keys]

    def seal(self, kind: str, payload: list[object]) -> str:
        """The handle of ``payload``, a list of JSON values. Deterministic under one key. A handle of one ``kind`` is
        garbage to any other. Raises ValueError when the handle would be longer than MAX_CHARACTERS.
        """
        content = strict_json.dumps(payload).encode()
        text = base64.urlsafe_b64encode(_mac(self._keys[0], kind, content) + content).rstrip(b"=").decode()
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"a handle of {len(text)} characters")
        return text

    def open(self, kind: str, text: str) -> list[object] | None:
        """The payload that ``text`` was sealed with; None for anything else, and for every such thing alike."""
        if len(text) > MAX_CHARACTERS or len(text) % 4 == 1 or not _BASE64URL.fullmatch(text):
            return None
        sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if base64.urlsafe_b64encode(sealed).rstrip(b"=").decode() != text:
            # Another spelling of the same bytes: one thing has one handle.
            return None
        mac, content = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        if not any(hmac.compare_digest(mac, _mac(key, kind, content)) for key in self._keys):
            return None
        return cast("list[object]", strict_json.loads_trusted(content))


def _mac(key: bytes, kind: str, content: bytes) -> bytes:
    return hmac.digest(key, kind.encode() + b"\x00" + content, hashlib.sha256)[:_MAC_BYTES]
