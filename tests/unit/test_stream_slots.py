"""Caps on open streams (security.md, Streams)."""

import pytest

from app.auth.caller import Caller
from app.errors import TooManyRequests
from app.transports.stream_slots import StreamSlots


def caller(tenant: str, subject: str) -> Caller:
    return Caller(tenant, subject, frozenset(), frozenset(), 0)


def test_a_refused_caller_takes_nothing_and_a_released_slot_is_free() -> None:
    slots = StreamSlots(total=3, per_tenant=2, per_subject=1)
    first = slots.take(caller("a", "u1"))
    with pytest.raises(TooManyRequests):
        slots.take(caller("a", "u1"))
    slots.take(caller("a", "u2"))
    with pytest.raises(TooManyRequests):
        slots.take(caller("a", "u3"))
    slots.take(caller("b", "u1"))
    with pytest.raises(TooManyRequests):
        slots.take(caller("c", "u1"))
    assert slots.open == 3
    first.release()
    first.release()
    assert slots.open == 2
    slots.take(caller("a", "u3"))


def test_nothing_is_remembered_of_callers_that_are_gone() -> None:
    slots = StreamSlots(total=10_000, per_tenant=10_000, per_subject=1)
    for taken in [slots.take(caller("a", f"u{number}")) for number in range(1000)]:
        taken.release()
    assert (slots.open, slots.remembered) == (0, 0)
