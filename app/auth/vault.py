"""Secrets at rest: credentials that clients and owners give, sealed before they are stored (security.md, Outbound
calls). Called by the ledger, which stores and reads them.

A sealed secret: version (1 byte), key id (8), nonce (12), AES-256-GCM ciphertext and tag (NIST SP 800-38D). Its
associated data are the version, the key id, the tenant and the row it belongs to: moved to another row, it does not
open.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_VERSION: Final = b"\x01"
_PURPOSE: Final = b"waystation vault"
_KEY_BYTES, _ID_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 8, 12, 16
_HEAD_BYTES: Final = len(_VERSION) + _ID_BYTES


class VaultError(Exception):
    """A secret that cannot be opened: damaged, of another row, or sealed with a key that is configured no more."""


@dataclass(frozen=True, slots=True)
class _Key:
    head: bytes
    cipher: AESGCM


class Vault:
    """Seals and opens secrets. ``keys`` are ``settings.secret_keys()``: the first seals, all open (rotation)."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("at least one key")
        self._keys = [_derive(key) for key in keys]

    def seal(self, secret: bytes, *, tenant: str, row: str) -> bytes:
        """``secret`` for the tenant's row that ``row`` names: its kind and id. Never the same bytes twice."""
        key, nonce = self._keys[0], os.urandom(_NONCE_BYTES)
        return key.head + nonce + key.cipher.encrypt(nonce, secret, _context(key, tenant, row))

    def open(self, sealed: bytes, *, tenant: str, row: str) -> bytes:
        """The secret that was sealed for this very tenant and row. Raises VaultError for anything else."""
        head, nonce = sealed[:_HEAD_BYTES], sealed[_HEAD_BYTES : _HEAD_BYTES + _NONCE_BYTES]
        key = next((key for key in self._keys if key.head == head), None)
        if key is None or len(sealed) < _HEAD_BYTES + _NONCE_BYTES + _TAG_BYTES:
            raise VaultError("not sealed with a key that is configured")
        try:
            return key.cipher.decrypt(nonce, sealed[_HEAD_BYTES + _NONCE_BYTES :], _context(key, tenant, row))
        except InvalidTag:
            raise VaultError("damaged, or of another row") from None


def _derive(secret: bytes) -> _Key:
    # RFC 5869. The same secrets serve other purposes; no two of them share a key, and the id tells nothing of it.
    output = HKDF(hashes.SHA256(), _KEY_BYTES + _ID_BYTES, salt=None, info=_PURPOSE).derive(secret)
    return _Key(_VERSION + output[_KEY_BYTES:], AESGCM(output[:_KEY_BYTES]))


def _context(key: _Key, tenant: str, row: str) -> bytes:
    # Neither PostgreSQL nor a tenant's name admits U+0000, so no two pairs give the same bytes.
    return b"\x00".join((key.head, tenant.encode(), row.encode()))
