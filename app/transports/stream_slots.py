"""Caps on open streams, per process: in all, per tenant and per subject (security.md, Streams)."""

from collections import Counter

from app.auth.caller import Caller
from app.errors import TooManyRequests

RETRY_AFTER_SECONDS = 5

Keys = tuple[tuple[str, ...], ...]


class StreamSlots:
    """``open`` is how many streams this process holds now. A slot is taken by ``take`` and given back exactly once."""

    def __init__(self, *, total: int, per_tenant: int, per_subject: int) -> None:
        self._limits = (total, per_tenant, per_subject)
        self._counts: Counter[tuple[str, ...]] = Counter()

    @property
    def open(self) -> int:
        return self._counts[()]

    @property
    def remembered(self) -> int:
        """How many counters there are: none when no stream is open."""
        return len(self._counts)

    def take(self, caller: Caller) -> "Slot":
        """Raises TooManyRequests when one of the caps is reached."""
        keys: Keys = ((), (caller.tenant,), (caller.tenant, caller.subject))
        for key, limit in zip(keys, self._limits, strict=True):
            if self._counts[key] >= limit:
                raise TooManyRequests("Too many open streams", retry_after=RETRY_AFTER_SECONDS)
        self._counts.update(keys)
        return Slot(self, keys)

    def give_back(self, keys: Keys) -> None:
        """Called by Slot only."""
        for key in keys:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


class Slot:
    """One open stream. ``release`` may be called again without harm."""

    def __init__(self, slots: StreamSlots, keys: Keys) -> None:
        self._slots = slots
        self._keys = keys

    def release(self) -> None:
        keys, self._keys = self._keys, ()
        self._slots.give_back(keys)
