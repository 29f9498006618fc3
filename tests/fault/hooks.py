"""A receiver of push notifications that refuses some, or answers none for a while, and records all. Called by storm.py
and by tests.
"""

import random
from dataclasses import replace

from tests.fault.history import Notified
from tests.support.receiver import Manner, Received, Receiver, Reply, Trouble

TROUBLES: tuple[Manner, ...] = (Reply(500), Reply(503, ("Retry-After: 1",)), Trouble.RESET, Trouble.CLOSE)


class FlakyReceiver(Receiver):
    """``trouble`` is the share of deliveries whose first request fails; the second one of any is taken. While it is
    ``silent`` everything waits for ``release``."""

    def __init__(self, rng: random.Random, trouble: float = 0.1, *, silent: bool = False) -> None:
        super().__init__()
        self.notified: list[Notified] = []
        self._rng = rng
        self._trouble = trouble
        self._silent = silent
        self._places: dict[int, int] = {}
        self._known: set[str] = set()

    def release(self) -> None:
        self._silent = False
        super().release()

    def manner_of(self, request: Received) -> Manner:
        task, seq, config = request.webhook_id.split(":")
        self._places[id(request)] = len(self.notified)
        self.notified.append(Notified(task, config, int(seq), ok=False, body=request.body.decode()))
        first = request.webhook_id not in self._known
        self._known.add(request.webhook_id)
        if self._silent:
            return Trouble.HANG
        return self._rng.choice(TROUBLES) if first and self._rng.random() < self._trouble else Reply()

    def answered(self, request: Received, manner: Manner) -> None:
        place = self._places[id(request)]  # requests are kept, so their ids stay their own
        if manner in (Reply(), Trouble.HANG):
            self.notified[place] = replace(self.notified[place], ok=True)
