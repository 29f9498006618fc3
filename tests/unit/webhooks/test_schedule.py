"""When the next attempt comes, and when none."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from app.webhooks.schedule import (
    MAX_AGE_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    PAUSES,
    SPREAD,
    parse_retry_after,
    pause_after,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_ten_attempts_over_hours_and_then_none() -> None:
    assert len(PAUSES) == 9
    assert 12 * 3600 < sum(PAUSES) < MAX_AGE_SECONDS
    assert pause_after(10, age_seconds=0) is None


@pytest.mark.parametrize("attempt", range(1, 10))
def test_each_pause_is_spread_around_its_length(attempt: int) -> None:
    pauses = [pause_after(attempt, age_seconds=0) or 0 for _ in range(200)]
    middle = PAUSES[attempt - 1]
    assert middle * (1 - SPREAD) <= min(pauses) < middle < max(pauses) <= middle * (1 + SPREAD)
    assert len(set(pauses)) > 100


def test_an_event_of_yesterday_gets_no_further_attempt() -> None:
    assert pause_after(1, age_seconds=MAX_AGE_SECONDS - 1) is not None
    assert pause_after(1, age_seconds=MAX_AGE_SECONDS + 1) is None


def test_retry_after_makes_a_pause_longer_within_an_hour() -> None:
    assert pause_after(1, age_seconds=0, retry_after=100) == 100
    assert pause_after(1, age_seconds=0, retry_after=10**9) == MAX_RETRY_AFTER_SECONDS
    assert (pause_after(5, age_seconds=0, retry_after=1) or 0) > 1
    assert pause_after(10, age_seconds=0, retry_after=1) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("120", 120),
        ("0", 0),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("9" * 65, None),
        (format_datetime(NOW + timedelta(minutes=2), usegmt=True), 120),
        (format_datetime(NOW - timedelta(minutes=2), usegmt=True), 0),
        ("Sat, 31 Jan 2026 12:01:00", 60),
        ("Sat, 31 Foo 2026 12:01:00", None),
        ("Sat, 31 Jan 99999 12:01:00 GMT", None),
        ("Sat, 31 Jan 99999999999999999999 12:01:00 GMT", None),
        ("Sat, 31 Jan 2026 12:01:00 -99999999999999999999", None),
    ],
)
def test_the_header_in_both_its_forms(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds
