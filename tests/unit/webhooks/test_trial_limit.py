"""How many test calls a tenant may make."""

import pytest

from app.errors import TooManyRequests
from app.webhooks.trial import AT_ONCE, PER_MINUTE, TrialLimit
from tests.unit.webhooks.test_breaker import Now


def test_some_at_a_time_for_each_tenant() -> None:
    limit = TrialLimit(Now())
    held = [limit.taken("a") for _ in range(AT_ONCE)]
    for one in held:
        one.__enter__()
    with pytest.raises(TooManyRequests) as refused, limit.taken("a"):
        pass
    assert refused.value.retry_after == 1
    with limit.taken("b"):
        pass
    held[0].__exit__(None, None, None)
    with limit.taken("a"):
        pass


def test_some_a_minute_for_each_tenant() -> None:
    now = Now()
    limit = TrialLimit(now)
    for _ in range(PER_MINUTE):
        with limit.taken("a"):
            now.seconds += 1
    with pytest.raises(TooManyRequests) as refused, limit.taken("a"):
        pass
    assert refused.value.retry_after == 60 - PER_MINUTE
    with limit.taken("b"):
        pass
    now.seconds += refused.value.retry_after
    with limit.taken("a"):
        pass
    with pytest.raises(TooManyRequests), limit.taken("a"):
        pass
