"""Caps on open streams, per process: in all, per tenant and per subject (security.md, Streams)."""

from collections import Counter

from app.auth.caller import Caller
from app.errors import TooManyRequests

RETRY_AFTER_SECONDS = 5


class StreamSlots:
    """``open`` is how many streams this process holds now. A slot is taken by ``take`` and given back exactly once."""

    def __init__(self, *, total: int, per_tenant: int, per_subject: int) -> None:
        self._limits = (total, per_tenant, per_subject)
        self._counts: Counter[tuple[str, ...]] = Counter()

    @property
    def open(self) -> int:
        return self._counts[()]

    def take(self, caller: Caller) -> "Slot":
        """Raises TooManyRequests when one of the caps is reached."""
        keys: tuple[tuple[str, ...], ...] = ((), (caller.tenant,), (caller.tenant, caller.subject))
        for key, limit in zip(keys, self._limits, strict=True):
            if self._counts[key] >= limit:
                raise TooManyRequests("Too many open streams", retry_after=RETRY_AFTER_SECONDS)
        self._counts.update(keys)
        return Slot(self._counts, keys)


class Slot:
    """One open stream. ``release`` may be called again without harm."""

    def __init__(self, counts: Counter[tuple[str, ...]], keys: tuple[tuple[str, ...], ...]) -> None:
        self._counts = counts
        self._keys = keys

    def release(self) -> None:
        for key in self._keys:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
        self._keys = ()
