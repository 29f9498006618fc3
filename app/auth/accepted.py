"""Remembers tokens that passed, so that a client's next request does not pay for its signature again.

Used by ``auth.tokens`` only. A remembered token is worth no more than a new one: it holds for the very key it was
verified with, which ``auth.keys`` is asked for each time, and its expiry is judged each time.
"""

import hashlib
from dataclasses import dataclass

from app.auth.caller import Caller
from app.auth.jwks import VerificationKey

MAX_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a token proved; ``key`` is None for a dev token, whose key never changes."""

    caller: Caller
    issuer: str
    key: VerificationKey | None


class AcceptedTokens:
    """The latest MAX_REMEMBERED tokens that passed, by digest: the process keeps no credentials."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, Accepted] = {}

    def get(self, token: str) -> Accepted | None:
        """What ``token`` proved, if it is remembered."""
        return self._by_digest.get(_digest(token))

    def put(self, token: str, accepted: Accepted) -> None:
        """Remember ``token``, and forget the oldest one when there are too many."""
        if len(self._by_digest) >= MAX_REMEMBERED:
            del self._by_digest[next(iter(self._by_digest))]
        self._by_digest[_digest(token)] = accepted


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
