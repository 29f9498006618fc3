"""What a receiver gets: every event once and in order, byte by byte, signed (a2a-server.md, Push configs)."""

import json
import time
from typing import NoReturn

from app.ledger import push_configs, webhook_secrets
from app.ledger.push_configs import NewPushConfig
from app.net.egress import Egress
from app.protocol.events import A2A_HIDDEN
from tests.integration.ledger.outbox import forget_event
from tests.integration.webhooks.conftest import LOOPBACK, Post
from tests.support.ledger import until
from tests.support.receiver import Receiver


async def test_a2a_java_594_every_event_is_notified_once_and_in_order(post: Post, hooks: Receiver) -> None:
    tasks = [await post.task(hooks.url(f"/{number}"), chunks=4) for number in range(5)]
    post.sender().start()
    for number, task in enumerate(tasks):
        ended = await post.ended(task)
        assert {(row.state, row.attempts, row.last_status, row.last_error) for row in ended} == {
            ("delivered", 1, 200, None)
        }
        shown = [event for event in await post.bench.log(task) if event.kind not in A2A_HIDDEN and event.seq > 1]
        got = hooks.at(f"/{number}")
        assert [(one.seq, one.body.decode()) for one in got] == [(event.seq, event.body) for event in shown]
        assert "COMPLETED" in got[-1].body.decode()


async def test_two_configs_of_a_task_hear_of_everything_each(post: Post, hooks: Receiver) -> None:
    await post.task(hooks.url("/a"), hooks.url("/b"), chunks=2)
    post.sender().start()
    await hooks.until(lambda: len(hooks.requests) == 8)
    assert (
        [one.seq for one in hooks.at("/a")]
        == [one.seq for one in hooks.at("/b")]
        == sorted(one.seq for one in hooks.at("/a"))
    )
    assert len({one.webhook_id for one in hooks.requests}) == 8


async def test_a_config_made_later_hears_of_what_comes_after_it(post: Post, hooks: Receiver) -> None:
    task = (await post.bench.submit()).task_id
    await post.bench.claim_one()
    seen = (await post.bench.load(task)).head.last_seq
    await post.configure(task, NewPushConfig("late", hooks.url("/late"), None, None, hooks.url("").rstrip("/")))
    await post.bench.cancel(task)
    post.sender().start()
    await hooks.until(lambda: hooks.requests)
    assert hooks.requests[0].seq == seen + 1


async def test_the_request_is_what_a2a_and_standard_webhooks_say(post: Post, hooks: Receiver) -> None:
    task = await post.task(hooks.url("/path?query=1"))
    post.sender().start()
    await hooks.until(lambda: len(hooks.requests) == 2)
    (secret,) = await post.secrets()
    for one in hooks.requests:
        assert (one.method, one.path) == ("POST", "/path?query=1")
        assert one.headers["content-type"] == "application/a2a+json"
        assert one.headers["a2a-version"] == "1.0"
        assert one.headers["user-agent"].startswith("Waystation/")
        assert one.webhook_id.startswith(f"{task}:{one.seq}:")
        assert abs(int(one.headers["webhook-timestamp"]) - time.time()) < 60
        assert one.is_signed_with(secret)
        assert one.json["statusUpdate"]["taskId"] == str(task)
        assert not {"authorization", "x-a2a-notification-token"} & one.headers.keys()


async def test_a2a_java_810_credentials_and_token_go_along(post: Post, hooks: Receiver) -> None:
    await post.task(hooks.url("/x"), token="t-1", scheme="Bearer", credentials="x")
    post.sender().start()
    await hooks.until(lambda: hooks.requests)
    assert hooks.requests[0].headers["authorization"] == "Bearer x"
    assert hooks.requests[0].headers["x-a2a-notification-token"] == "t-1"


async def test_while_a_secret_is_replaced_both_sign(post: Post, hooks: Receiver) -> None:
    (old,) = await post.secrets()
    await webhook_secrets.rotate(post.bench.db, post.vault, post.bench.tenant, overlap_seconds=3600)
    new, same = await post.secrets()
    assert same == old != new
    await post.task(hooks.url("/x"))
    post.sender().start()
    await hooks.until(lambda: hooks.requests)
    assert hooks.requests[0].is_signed_with(old)
    assert hooks.requests[0].is_signed_with(new)


async def test_a_failure_holds_back_what_follows_it_and_nothing_else(post: Post, hooks: Receiver) -> None:
    hooks.script("/bad", 500, 503)
    bad = await post.task(hooks.url("/bad"), chunks=2)
    good = await post.task(hooks.url("/good"), chunks=2)
    post.sender().start()
    rows = await post.ended(bad)
    assert [row.attempts for row in rows] == [3, 1, 1, 1]
    seqs = [one.seq for one in hooks.at("/bad")]
    assert seqs == [seqs[0], seqs[0], *sorted(set(seqs))]
    assert len({one.webhook_id for one in hooks.at("/bad")[:3]}) == 1, "the id is the same on every attempt"
    await post.ended(good)
    assert len(hooks.at("/good")) == 4


async def test_after_its_last_attempt_it_is_dead_and_the_next_one_goes_out(post: Post, hooks: Receiver) -> None:
    hooks.script("/x", 500, 500, 500)
    task = await post.task(hooks.url("/x"), chunks=1)
    post.sender().start()
    rows = await post.ended(task)
    assert [(row.state, row.attempts, row.last_status) for row in rows] == [
        ("dead", 3, 500), ("delivered", 1, 200), ("delivered", 1, 200),
    ]  # fmt: skip
    assert rows[0].last_error == "Status 500"


async def test_a_fault_in_sending_is_a_failed_attempt(post: Post, hooks: Receiver) -> None:
    class Faulty(Egress):
        async def request(self, *_: object, **__: object) -> NoReturn:
            raise RuntimeError("a fault of ours")

    task = await post.task(hooks.url("/x"))
    post.sender(egress=Faulty(LOOPBACK)).start()
    assert {(row.state, row.attempts) for row in await post.ended(task)} == {("dead", 3)}


async def test_a_delivery_whose_event_is_gone_is_dead_and_the_next_one_goes_out(
    post: Post, hooks: Receiver, database_url: str
) -> None:
    task = await post.task(hooks.url("/x"), chunks=2)
    await forget_event(database_url, task, 3)
    post.sender().start()
    gone, *others = await post.ended(task)
    assert (gone.state, gone.attempts, gone.last_error) == ("dead", 1, "The event is not kept any more")
    assert {row.state for row in others} == {"delivered"}
    assert [one.seq for one in hooks.requests] == [4, 5, 6]


async def test_a_config_that_is_deleted_hears_of_nothing_more(post: Post, hooks: Receiver) -> None:
    hooks.always("/x", 500)
    task = await post.task(hooks.url("/x"), chunks=1)
    (config,) = await push_configs.list_configs(post.bench.db, post.bench.tenant, task)
    post.sender(pause=lambda *_, **__: 0.02).start()
    await hooks.until(lambda: hooks.requests)
    await push_configs.delete(post.bench.db, post.bench.tenant, task, config.config_id)

    async def nothing_pending() -> bool:
        return not await post.rows(task, "pending")

    await until(nothing_pending)


async def test_the_body_is_a_stream_response_of_a2a(post: Post, hooks: Receiver) -> None:
    await post.task(hooks.url("/x"), chunks=1)
    post.sender().start()
    await hooks.until(lambda: len(hooks.requests) == 3)
    bodies = [json.loads(one.body) for one in hooks.requests]
    assert [list(body) for body in bodies] == [["statusUpdate"], ["artifactUpdate"], ["statusUpdate"]]
