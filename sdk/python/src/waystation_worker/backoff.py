"""How long to wait before a request is sent again. Used by the broker client and the claim loop."""

from collections.abc import Mapping
from random import SystemRandom

BASE_SECONDS = 0.05
CAP_SECONDS = 2.0
LONGEST_RETRY_AFTER = 60.0

_random = SystemRandom()


def full_jitter(failures: int) -> float:
    """Seconds before the next attempt after ``failures`` (1, 2, …) in a row: uniform in 0 .. base * 2^n, capped.

    "Full jitter" of the AWS Architecture Blog, "Exponential Backoff And Jitter" (2015). The cap keeps the first success
    within three seconds of the broker's return (reliability.md).
    """
    return _random.uniform(0, min(CAP_SECONDS, BASE_SECONDS * 2 ** min(failures, 16)))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds a Retry-After header asks for (RFC 9110 §10.2.3), slightly spread; None without a usable one."""
    try:
        seconds = float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    if not 0 <= seconds <= LONGEST_RETRY_AFTER:
        return None
    return seconds + _random.uniform(0, BASE_SECONDS)
