"""Receivers that do not answer are paused, probed by one, and forgotten when they answer."""

import pytest

from app.webhooks.breaker import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, MAX_RECEIVERS, THRESHOLD, Breaker

DOWN = ("a", "http://down")


class Now:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def breaker(now: Now) -> Breaker:
    return Breaker(now, spread=0)


def fail(breaker: Breaker, times: int = THRESHOLD) -> None:
    for _ in range(times):
        breaker.failed(DOWN)


def test_some_failures_in_a_row_pause_a_receiver_and_no_other(breaker: Breaker) -> None:
    fail(breaker, THRESHOLD - 1)
    breaker.failed(("a", "http://other"))
    assert breaker.paused({}) == breaker.probed() == set()
    breaker.failed(DOWN)
    assert breaker.paused({}) == breaker.probed() == {DOWN}


def test_an_answer_in_between_begins_the_count_anew(breaker: Breaker) -> None:
    fail(breaker, THRESHOLD - 1)
    breaker.answered(DOWN)
    fail(breaker, THRESHOLD - 1)
    assert breaker.paused({}) == set()


def test_after_the_pause_one_request_at_a_time(breaker: Breaker, now: Now) -> None:
    fail(breaker)
    now.seconds += FIRST_PAUSE_SECONDS - 1
    assert breaker.paused({}) == {DOWN}
    now.seconds += 1
    assert breaker.paused({}) == set()
    assert breaker.probed() == {DOWN}
    assert breaker.paused({DOWN: 1}) == {DOWN}
    breaker.answered(DOWN)
    assert breaker.paused({DOWN: 1}) == breaker.probed() == set()


def test_pauses_grow_to_a_bound(breaker: Breaker, now: Now) -> None:
    fail(breaker)
    pause = FIRST_PAUSE_SECONDS
    for _ in range(20):
        now.seconds += pause - 0.5
        assert breaker.paused({}) == {DOWN}
        now.seconds += 0.5
        assert breaker.paused({}) == set()
        breaker.failed(DOWN)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


def test_requests_that_were_under_way_make_a_pause_no_longer(breaker: Breaker, now: Now) -> None:
    fail(breaker, 3 * THRESHOLD)
    now.seconds += FIRST_PAUSE_SECONDS
    assert breaker.paused({}) == set()


def test_pauses_are_spread(now: Now) -> None:
    ends: set[float] = set()
    for _ in range(20):
        breaker = Breaker(now)
        fail(breaker)
        ends.add(next(seconds / 10 for seconds in range(101) if not paused_at(breaker, now, seconds / 10)))
    assert len(ends) > 3
    assert min(ends) >= FIRST_PAUSE_SECONDS * 0.7
    assert max(ends) <= FIRST_PAUSE_SECONDS + 0.1


def paused_at(breaker: Breaker, now: Now, seconds: float) -> bool:
    now.seconds += seconds
    paused = bool(breaker.paused({}))
    now.seconds -= seconds
    return paused


def test_memory_is_bounded(breaker: Breaker) -> None:
    for number in range(MAX_RECEIVERS + 10):
        for _ in range(THRESHOLD):
            breaker.failed(("a", f"http://{number}"))
    assert breaker.probed() == {("a", f"http://{number}") for number in range(10, MAX_RECEIVERS + 10)}
