"""Receivers that do not answer are left alone for a while. One per replica, in memory. Called by ``webhooks.sender``.

A receiver whose requests fail without any answer (no connection, no answer in time) several times in a row is
paused; when the pause is over one delivery probes it, and the pause grows with each probe that fails too. While it is
paused nothing of it is claimed, so no delivery uses up an attempt. An answer of any status ends all that: who answers
is not down, and each delivery's own schedule is enough.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.ledger.deliveries import Receiver

THRESHOLD: Final = 5
FIRST_PAUSE_SECONDS: Final = 10.0
MAX_PAUSE_SECONDS: Final = 300.0
MAX_RECEIVERS: Final = 1000
"""More are not remembered: the one that failed least recently is forgotten first."""
_random = random.SystemRandom()


@dataclass(slots=True)
class _Failing:
    """``until``: the end of the pause, of the same clock as everything here."""

    failures: int = 0
    pauses: int = 0
    until: float = float("-inf")


class Breaker:
    """``clock`` gives monotonic seconds; ``spread`` shortens each pause at random by up to that fraction."""

    def __init__(self, clock: Callable[[], float], spread: float = 0.3) -> None:
        self._clock = clock
        self._spread = spread
        self._failing: OrderedDict[Receiver, _Failing] = OrderedDict()

    def answered(self, receiver: Receiver) -> None:
        """A request was answered, whatever the status."""
        self._failing.pop(receiver, None)

    def failed(self, receiver: Receiver) -> None:
        """A request got no answer."""
        state = self._failing.setdefault(receiver, _Failing())
        self._failing.move_to_end(receiver)
        while len(self._failing) > MAX_RECEIVERS:
            self._failing.popitem(last=False)
        state.failures += 1
        # requests that were under way when the pause began tell nothing new
        if state.failures >= THRESHOLD and self._clock() >= state.until:
            pause = min(FIRST_PAUSE_SECONDS * 2**state.pauses, MAX_PAUSE_SECONDS)
            state.until = self._clock() + pause * (1 - self._spread * _random.random())
            state.pauses = min(state.pauses + 1, 16)

    def paused(self, in_flight: Mapping[Receiver, int]) -> set[Receiver]:
        """The receivers to which nothing may be sent now: paused, or probed by a request that is in flight."""
        now = self._clock()
        return {
            receiver
            for receiver, state in self._failing.items()
            if state.until > now or (state.pauses and in_flight.get(receiver))
        }

    def probed(self) -> set[Receiver]:
        """The receivers that have been paused and have not answered since: one request at a time, no more."""
        return {receiver for receiver, state in self._failing.items() if state.pauses}
