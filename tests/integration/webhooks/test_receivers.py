"""Receivers that are slow, down, hostile or not what they seem harm nothing but their own deliveries (security.md,
Outbound calls)."""

import asyncio
from collections.abc import Sequence

import pytest

from app.ledger.push_configs import NewPushConfig
from app.net.egress import Egress, EgressPolicy
from app.protocol.states import TaskState
from app.webhooks.breaker import THRESHOLD
from app.webhooks.schedule import pause_after
from app.webhooks.sender import AT_ONCE, BYTES, PER_RECEIVER, PER_TENANT, TENANT_BYTES
from tests.integration.webhooks.conftest import ATTEMPTS, Post
from tests.support.broker import free_port
from tests.support.ledger import chunk, status, until
from tests.support.receiver import Receiver, Reply, Trouble

LARGE = 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("manner", "status", "error"),
    [
        (Reply(302, ("Location: /elsewhere",)), 302, "Status 302"),
        (Reply(307, ("Location: /elsewhere",)), 307, "Status 307"),
        (Reply(404), 404, "Status 404"),
        (Reply(429, ("Retry-After: 0",)), 429, "Status 429"),
        (Reply(503, ("Retry-After: nonsense",)), 503, "Status 503"),
        (Trouble.RESET, None, "The connection was closed before the answer"),
        (Trouble.CLOSE, None, "The connection was closed before the answer"),
    ],
)
async def test_what_is_no_2xx_is_tried_again_until_it_is_dead(
    post: Post, hooks: Receiver, manner: Reply | Trouble, status: int | None, error: str
) -> None:
    hooks.script("/x", *[manner] * ATTEMPTS)
    task = await post.task(hooks.url("/x"))
    post.sender().start()
    first, second = await post.ended(task)
    assert (first.state, first.attempts, first.last_status, first.last_error) == ("dead", ATTEMPTS, status, error)
    assert (second.state, second.attempts, second.last_status) == ("delivered", 1, 200)
    assert {one.path for one in hooks.requests} == {"/x"}, "a redirect was followed"


async def test_410_gone_is_dead_at_once(post: Post, hooks: Receiver) -> None:
    hooks.always("/x", 410)
    task = await post.task(hooks.url("/x"))
    post.sender(pause=pause_after).start()
    rows = await post.ended(task)
    assert [(row.state, row.attempts, row.last_status) for row in rows] == [("dead", 1, 410)] * 2


async def test_megabytes_are_not_read(post: Post, hooks: Receiver) -> None:
    hooks.always("/x", Trouble.FLOOD)
    task = await post.task(hooks.url("/x"))
    post.sender().start()
    rows = await post.ended(task)
    assert [(row.state, row.attempts, row.last_status) for row in rows] == [("delivered", 1, 200)] * 2


@pytest.mark.parametrize("trouble", [Trouble.HANG, Trouble.DRIP])
async def test_no_answer_in_time_is_none(post: Post, hooks: Receiver, trouble: Trouble) -> None:
    hooks.script("/x", trouble)
    post.timeout_seconds = 2
    task = await post.task(hooks.url("/x"))
    post.sender().start()
    rows = await post.ended(task)
    assert [(row.state, row.attempts) for row in rows] == [("delivered", 2), ("delivered", 1)]


async def test_a_receiver_that_hangs_holds_its_own_places_only(
    post: Post, hooks: Receiver, other_hooks: Receiver
) -> None:
    """50 tasks for a receiver that says nothing, and while it still hangs another one gets everything."""
    hooks.always("/slow", Trouble.HANG)
    post.timeout_seconds = 60
    for _ in range(50):
        await post.task(hooks.url("/slow"))
    for sender in (post.sender(), post.sender()):
        sender.start()
    await hooks.until(lambda: hooks.open["/slow"] == 2 * PER_RECEIVER)
    tasks = [await post.task(other_hooks.url("/quick"), chunks=3) for _ in range(10)]
    for task in tasks:
        assert {row.state for row in await post.ended(task)} == {"delivered"}
    assert hooks.open["/slow"] == len(hooks.requests) == 2 * PER_RECEIVER, "it still hangs"
    hooks.release()
    await hooks.until(lambda: len(hooks.requests) == 100, seconds=40)
    assert hooks.most_open["/slow"] <= 2 * PER_RECEIVER


async def test_a_tenant_with_many_slow_receivers_leaves_room_for_others(
    post: Post, hooks: Receiver, other_hooks: Receiver
) -> None:
    """Each of its webhooks is a destination of its own, so that no other bound holds."""
    hooks.always("/slow", Trouble.HANG)
    post.timeout_seconds = 60
    for number in range(2 * PER_TENANT):
        task = (await post.bench.submit()).task_id
        config = NewPushConfig("c", hooks.url("/slow"), None, None, f"http://slow-{number}")
        await post.configure(task, config)
        await post.work(0)
    post.sender().start()
    await hooks.until(lambda: hooks.open["/slow"] >= PER_TENANT)
    other = post.of_tenant("b")
    for row in await other.ended(await other.task(other_hooks.url("/quick"), chunks=3)):
        assert row.state == "delivered"
    assert PER_TENANT <= hooks.open["/slow"] == len(hooks.requests) < AT_ONCE / 2, "it still hangs"
    hooks.release()
    await hooks.until(lambda: len(hooks.requests) == 4 * PER_TENANT, seconds=40)


async def large(post: Post, hooks: Receiver, number: int) -> None:
    """A task whose webhook, a destination of its own, hears of 2 MiB and of the end."""
    task = (await post.bench.submit()).task_id
    lease = await post.bench.claim_one()
    await post.configure(task, NewPushConfig("c", hooks.url("/slow"), None, None, f"http://slow-{number}"))
    await post.bench.append(lease, chunk("x" * LARGE), status(TaskState.COMPLETED))


async def test_large_bodies_under_way_are_bounded_for_each_tenant_and_in_all(
    post: Post, hooks: Receiver, other_hooks: Receiver
) -> None:
    hooks.always("/slow", Trouble.HANG)
    post.timeout_seconds = 60
    sender, other = post.sender(hold_seconds=60), post.of_tenant("other")
    for held, tenant in enumerate("abcd", start=1):
        for number in range(TENANT_BYTES // LARGE + 2):
            await large(post.of_tenant(tenant), hooks, number)
        while await sender.run_once():
            pass
        begun = [row for row in await post.of_tenant(tenant).rows() if row.attempts]
        assert len(begun) == TENANT_BYTES // LARGE
        await hooks.until(lambda held=held: hooks.open["/slow"] == held * TENANT_BYTES // LARGE)
        if tenant == "a":
            task = await other.task(other_hooks.url("/quick"))
            while await other.rows(task, "pending"):
                await sender.run_once()
    task = await other.task(other_hooks.url("/quick"))
    assert not await sender.run_once()
    assert hooks.open["/slow"] == BYTES // LARGE
    assert {row.attempts for row in await other.rows(task)} == {0}, "nobody's more until there is room"
    hooks.release()
    sender.start()
    await other_hooks.until(lambda: len(other_hooks.requests) == 4)
    await hooks.until(lambda: len(hooks.requests) == 2 * (BYTES // LARGE + 2 * 4), seconds=40)


async def test_a_receiver_that_is_down_is_left_alone_and_uses_up_no_attempts(post: Post) -> None:
    url = f"http://127.0.0.1:{free_port()}/x"
    tasks = [await post.task(url) for _ in range(30)]
    sender = post.sender(pause=lambda *_, **__: 0.01)

    async def tried() -> int:
        return sum(row.attempts for row in await post.rows())

    sender.start()

    async def paused() -> bool:
        return await tried() >= THRESHOLD

    await until(paused)
    await sender.settled()
    before = await tried()
    for _ in range(5):
        await sender.run_once()
        await sender.settled()
    assert await tried() == before
    assert before < 2 * PER_RECEIVER + THRESHOLD
    assert {row.state for row in await post.rows()} == {"pending"}
    assert len(tasks) == 30


async def test_a_receiver_that_is_gone_keeps_nothing_for_much_more_than_a_day(post: Post) -> None:
    """However much is due: it is asked so seldom that each event's own attempt would come after months."""
    url = f"http://127.0.0.1:{free_port()}/x"
    tasks = [await post.task(url) for _ in range(30)]
    async with post.bench.db.tenant("a") as connection:
        await connection.execute("UPDATE deliveries SET created_at = created_at - interval '25 h'")
    sender = post.sender(pause=pause_after)
    sender.start()
    for task in tasks:
        assert {row.state for row in await post.ended(task)} == {"dead"}
    assert sum(row.attempts for row in await post.rows()) < 2 * PER_RECEIVER + THRESHOLD


async def test_a_receiver_that_comes_back_gets_everything_in_order(post: Post, hooks: Receiver) -> None:
    hooks.script("/x", *[Trouble.RESET] * 4)
    tasks = [await post.task(hooks.url("/x"), chunks=3) for _ in range(3)]
    post.sender(pause=lambda *_, **__: 0.02).start()
    for task in tasks:
        assert {row.state for row in await post.ended(task)} == {"delivered"}
        first: dict[str, int] = {}
        for one in hooks.requests:
            if one.webhook_id.startswith(str(task)):
                first.setdefault(one.webhook_id, one.seq)
        assert list(first.values()) == sorted(first.values())


class ChangingNames:
    """A resolver whose answer changes: the first ``good`` times public, from then on this machine."""

    def __init__(self, good: int) -> None:
        self.good = good
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return ["93.184.215.14"] if self.asked <= self.good else ["127.0.0.1"]


async def test_a_name_that_leads_to_this_machine_at_last_is_refused(post: Post, hooks: Receiver) -> None:
    names = ChangingNames(good=1)
    egress = Egress(EgressPolicy(allow_http=True, ports=frozenset({hooks.port})), resolve=names)
    url = hooks.url("/x", host="rebinding.example")
    await egress.vet(url)
    task = (await post.bench.submit()).task_id
    await post.configure(task, NewPushConfig("c", url, None, None, url.rsplit("/", 1)[0]))
    await post.bench.cancel(task)
    post.sender(egress=egress, pause=pause_after).start()
    (row,) = await post.ended(task)
    assert (row.state, row.attempts, row.last_status) == ("dead", 1, None)
    assert row.last_error == "The URL's host is not on the public Internet, nor in WAYSTATION_EGRESS_ALLOW_CIDRS"
    assert hooks.requests == []


async def test_every_address_of_a_name_must_be_allowed(post: Post, hooks: Receiver) -> None:
    async def two(host: str, port: int) -> Sequence[str]:
        return ["93.184.215.14", "10.0.0.1"]

    egress = Egress(EgressPolicy(allow_http=True, ports=frozenset({hooks.port})), resolve=two)
    task = (await post.bench.submit()).task_id
    await post.configure(
        task, NewPushConfig("c", hooks.url("/x", host="two.example"), None, None, "http://two.example")
    )
    await post.bench.cancel(task)
    post.sender(egress=egress, pause=pause_after).start()
    (row,) = await post.ended(task)
    assert row.state == "dead"
    assert row.last_error == "The URL's host is not on the public Internet, nor in WAYSTATION_EGRESS_ALLOW_CIDRS"


async def test_a_stopped_sender_loses_nothing(post: Post, hooks: Receiver) -> None:
    """What it could not end is sent again by another one, when its hold is over."""
    hooks.script("/x", Trouble.HANG)
    post.timeout_seconds = 60
    task = await post.task(hooks.url("/x"), chunks=2)
    first = post.sender(hold_seconds=4)
    await first.run_once()
    await hooks.until(lambda: hooks.requests)
    post.sender(hold_seconds=4).start()
    await first.stop()
    rows = await post.ended(task)
    assert {row.state for row in rows} == {"delivered"}
    assert rows[0].attempts == 2
    seqs = [one.seq for one in hooks.requests]
    assert seqs == [seqs[0], *sorted(set(seqs))]


async def test_a_draining_sender_ends_what_is_under_way_and_takes_nothing_more(post: Post, hooks: Receiver) -> None:
    hooks.script("/x", Trouble.HANG)
    task = await post.task(hooks.url("/x"))
    sender = post.sender()
    sender.start()
    await hooks.until(lambda: hooks.requests)
    sender.drain()
    hooks.release()
    await sender.settled()
    assert await sender.run_once() is False
    await sender.stop()
    assert [row.state for row in sorted(await post.rows(task), key=lambda row: row.key.seq)] == ["delivered", "pending"]


async def test_two_senders_send_each_once(post: Post, hooks: Receiver) -> None:
    tasks = [await post.task(hooks.url("/x"), chunks=5) for _ in range(10)]
    for sender in (post.sender(), post.sender()):
        sender.start()
    await asyncio.gather(*(post.ended(task) for task in tasks))
    assert len({one.webhook_id for one in hooks.requests}) == len(hooks.requests) == 10 * 7
