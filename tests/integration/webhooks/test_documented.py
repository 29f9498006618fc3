"""What docs/webhooks.md tells a receiver to do is done here, as it stands there."""

import re
from collections.abc import Callable

import pytest

from app.webhooks import breaker, notify, schedule, sender, trial
from tests.integration.webhooks.conftest import Post
from tests.support.broker import ROOT
from tests.support.receiver import Receiver

PAGE = (ROOT / "docs/webhooks.md").read_text()


@pytest.fixture
def verify() -> Callable[..., bool]:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Callable[..., bool]] = {}
    exec(block, names)
    return names["verify"]


async def test_the_receivers_check_accepts_what_is_sent_and_nothing_else(
    post: Post, hooks: Receiver, verify: Callable[..., bool]
) -> None:
    (secret,) = await post.secrets()
    await post.task(hooks.url("/x"))
    post.sender().start()
    await hooks.until(lambda: hooks.requests)
    one = hooks.requests[0]
    assert verify(secret, one.headers, one.body)
    assert not verify(secret, one.headers, one.body + b" ")
    assert not verify("whsec_" + "x" * 44, one.headers, one.body)
    assert not verify(secret, one.headers | {"webhook-id": "another"}, one.body)
    late = str(int(one.headers["webhook-timestamp"]) - 301)
    assert not verify(secret, one.headers | {"webhook-timestamp": late}, one.body)


def test_the_pages_numbers_are_the_codes() -> None:
    assert list(schedule.PAUSES) == [5, 30, 120, 600, 1800, 3600, 7200, 14400, 28800]
    assert f"within {notify.TIMEOUT_SECONDS:.0f} s" in PAGE
    assert f"at most {sender.PER_RECEIVER} requests at a time" in PAGE
    assert (
        f"for {breaker.FIRST_PAUSE_SECONDS:.0f} s, doubled up to {breaker.MAX_PAUSE_SECONDS / 60:.0f} minutes" in PAGE
    )
    assert f"At most {trial.AT_ONCE} at a time and {trial.PER_MINUTE} a minute" in PAGE
