"""When a notification that was not taken is tried again, and when no more. Called by ``webhooks.sender``."""

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

PAUSES: Final = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0)
"""Seconds after the first, second, … failed attempt: ten attempts within about 16 hours."""
SPREAD: Final = 0.5
"""Each pause is between half as long and half as long again: deliveries that failed together do not return together."""
MAX_AGE_SECONDS: Final = 86400.0
"""An event older than this gets no further attempt: a receiver that is gone holds a task's events for a day, not for
16 hours each."""
MAX_RETRY_AFTER_SECONDS: Final = 3600.0
_random = random.SystemRandom()


def pause_after(attempt: int, *, age_seconds: float, retry_after: float | None = None) -> float | None:
    """Seconds until the next attempt after the failed ``attempt`` (1-based), or None: no more, it is dead.

    ``age_seconds`` is the event's age; ``retry_after`` what the receiver has asked for: it can make a pause longer, up
    to an hour, never shorter.
    """
    if attempt > len(PAUSES) or age_seconds > MAX_AGE_SECONDS:
        return None
    pause = PAUSES[attempt - 1] * _random.uniform(1 - SPREAD, 1 + SPREAD)
    return max(pause, min(retry_after or 0.0, MAX_RETRY_AFTER_SECONDS))


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds from a ``Retry-After`` header, delta-seconds or a date (RFC 9110 §10.2.3); None for anything else."""
    if value is None or len(value) > 64:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    # a date without a zone is GMT (RFC 9110 §5.6.7)
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())
