"""What is kept of deliveries that have ended, and what operators see of those that have not."""

import re

from app import metrics
from app.auth.vault import Vault
from app.maintenance.gauges import QueueGauges
from app.maintenance.outbox import Outbox
from tests.integration.webhooks.conftest import Post
from tests.support.ledger import until
from tests.support.receiver import Receiver


async def test_ended_deliveries_are_forgotten_after_their_time(post: Post, hooks: Receiver) -> None:
    hooks.script("/x", 410)
    task = await post.task(hooks.url("/x"))
    post.sender().start()
    assert [row.state for row in await post.ended(task)] == ["dead", "delivered"]
    await Outbox(post.bench.db).run_once()
    assert len(await post.rows(task)) == 2

    async def forgotten(state: str) -> bool:
        await Outbox(post.bench.db, {state: 0.001}).run_once()
        return not await post.rows(task, state)

    await until(lambda: forgotten("delivered"))
    assert [row.state for row in await post.rows(task)] == ["dead"]
    await until(lambda: forgotten("dead"))


async def test_what_is_pending_is_kept(post: Post, hooks: Receiver) -> None:
    task = await post.task(hooks.url("/x"))
    await Outbox(post.bench.db, {"delivered": 0, "dead": 0}).run_once()
    assert [row.state for row in await post.rows(task)] == ["pending", "pending"]


async def test_the_gauges_show_what_is_due(post: Post, hooks: Receiver) -> None:
    tasks = [await post.task(hooks.url("/x")) for _ in range(3)]
    await QueueGauges(post.bench.db).refresh()
    assert metrics.DELIVERIES_DUE._value.get() == 3, "one of each line"
    assert 0 < metrics.DELIVERIES_OLDEST._value.get() < 60
    before = {outcome: metrics.DELIVERIES.labels(outcome)._value.get() for outcome in ("delivered", "retried", "dead")}
    hooks.script("/x", 500, 410)
    post.sender().start()
    for task in tasks:
        await post.ended(task)
    await QueueGauges(post.bench.db).refresh()
    assert (metrics.DELIVERIES_DUE._value.get(), metrics.DELIVERIES_OLDEST._value.get()) == (0, 0)
    counted = {outcome: metrics.DELIVERIES.labels(outcome)._value.get() - count for outcome, count in before.items()}
    assert counted == {"delivered": 5, "retried": 1, "dead": 1}
    text = metrics.render().decode()
    assert re.search(r"^waystation_delivery_seconds_count [1-9]", text, re.MULTILINE)
    assert not re.search(rf"127\.0\.0\.1|{tasks[0]}", text), "no label names a receiver or a task"


async def test_secrets_that_cannot_be_opened_use_up_attempts_and_are_not_sent(post: Post, hooks: Receiver) -> None:
    """SECRET_KEY without the key that sealed them: nothing goes out unsigned or without its credentials."""
    task = await post.task(hooks.url("/x"), token="t")
    post.sender(vault=Vault([b"w" * 32])).start()
    rows = await post.ended(task)
    assert {(row.state, row.last_status, row.last_error) for row in rows} == {
        ("dead", None, "The stored credentials cannot be read")
    }
    assert hooks.requests == []
