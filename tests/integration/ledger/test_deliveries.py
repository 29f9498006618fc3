"""The outbox's order, its claims, and what ends a delivery. The clock is the database's: a hold of 0 s has run out."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from app.ledger import deliveries, push_configs
from app.ledger.deliveries import Delivery, DeliveryId, DeliveryMissing, Redelivered, StillPending
from app.protocol.states import TaskState
from tests.integration.ledger.outbox import (
    claim,
    config,
    configure,
    drain,
    due,
    forget_event,
    rows,
    seqs,
    submit_with,
)
from tests.support.ledger import Bench, chunk, status

ONE, TWO = "https://one.example:443", "https://two.example:443"


async def task_with(bench: Bench, *urls: str, chunks: int = 3) -> UUID:
    """A completed task whose configs c0, c1 … heard of everything after its submit: seqs 3 to 4 + chunks."""
    task_id = (await bench.submit()).task_id
    for number, url in enumerate(urls or ("https://one.example/hook",)):
        await configure(bench, task_id, config(f"c{number}", url))
    await bench.append(
        await bench.claim_one(),
        *(chunk("x", append=number > 0) for number in range(chunks)),
        status(TaskState.COMPLETED),
    )
    return task_id


async def take(bench: Bench, seq: int | None = None, **options: float) -> Delivery:
    (one,) = await claim(bench, **options)
    assert seq in (None, one.seq)
    return one


async def retry(bench: Bench, one: Delivery, seconds: float | None = 0, error: str = "status 500") -> bool:
    return await deliveries.failed(bench.db, one, status=500, error=error, retry_seconds=seconds)


async def test_only_the_head_of_a_line_is_due(bench: Bench) -> None:
    task_id = await task_with(bench)
    assert [seq for seq, _ in await due(bench, task_id)] == [3]
    one = await take(bench, 3)
    assert (one.id, one.attempt, one.destination) == (f"{task_id}:3:c0", 1, ONE)
    assert await claim(bench) == [], "it is held, and the others wait"
    assert await deliveries.delivered(bench.db, one, 204)
    assert (await take(bench)).seq == 4
    (first, *_) = await rows(bench, task_id)
    assert (first.state, first.attempts, first.last_status, first.due_at) == ("delivered", 1, 204, None)
    assert first.ended_at is not None


async def test_a_claim_ends_with_the_body_that_reaches_its_bytes(bench: Bench) -> None:
    for letter in "abcd":
        task_id = (await bench.submit()).task_id
        lease = await bench.claim_one()
        await configure(bench, task_id, config(url=f"https://{letter}.example/x"))
        await bench.append(lease, chunk("ü" * 1000))
    for limit_bytes, letters in ((1, "a"), (2000, "b"), (2500, "cd")):
        taken = await claim(bench, limit_bytes=limit_bytes)
        assert [one.destination for one in taken] == [f"https://{letter}.example:443" for letter in letters]
        assert all(2000 < one.size < 2500 for one in taken)


async def test_a_delivery_whose_event_is_gone_is_taken_without_a_body(bench: Bench, database_url: str) -> None:
    """Retention drops partitions of the log; what is pending then must not stand for ever."""
    task_id = await task_with(bench)
    await forget_event(database_url, task_id, 3)
    one = await take(bench, 3)
    assert (one.body, one.size) == (None, 0)
    assert await retry(bench, one, None, "gone")
    assert (await take(bench, 4)).body is not None


async def test_a_line_waits_for_its_head_through_retries_and_goes_on_when_it_is_dead(bench: Bench) -> None:
    await task_with(bench)
    for attempt in (1, 2, 3):
        one = await take(bench, 3)
        assert one.attempt == attempt
        assert await retry(bench, one)
    one = await take(bench, 3)
    assert await retry(bench, one, None, "gone for good")
    (first, *_) = await rows(bench)
    assert (first.state, first.last_error, first.attempts) == ("dead", "gone for good", 4)
    assert [seq for _, seq in await drain(bench)] == [4, 5, 6, 7]


async def test_a_retry_is_due_when_its_pause_is_over(bench: Bench) -> None:
    await task_with(bench)
    assert await retry(bench, await take(bench, 3), 3600)
    assert await claim(bench) == []
    assert (await rows(bench))[0].last_error == "status 500"


async def test_a_crashed_senders_deliveries_are_claimable_when_its_hold_is_over(bench: Bench) -> None:
    await task_with(bench)
    lost = await take(bench, 3, hold=0)
    again = await take(bench, 3)
    assert again.attempt == 2
    assert not await deliveries.delivered(bench.db, lost, 200), "fenced"
    assert not await retry(bench, lost)
    assert not await retry(bench, lost, None)
    assert await deliveries.delivered(bench.db, again, 200)
    assert not await deliveries.delivered(bench.db, again, 200), "once"
    assert await take(bench) is not None


async def test_an_event_after_an_empty_line_is_due_at_once(bench: Bench) -> None:
    task_id = (await submit_with(bench, config())).task_id
    lease = await bench.claim_one()
    assert await drain(bench) == [("c", 3)]
    await bench.append(lease, chunk("x"))
    assert await drain(bench) == [("c", 4)]
    held = await take(bench) if await bench.append(lease, chunk("y")) else None
    await bench.append(lease, chunk("z"))
    assert [seq for seq, _ in await due(bench, task_id)] == [5]
    assert held is not None
    assert await deliveries.delivered(bench.db, held, 200)
    assert await drain(bench) == [("c", 6)]


async def test_configs_of_one_task_do_not_wait_for_each_other(bench: Bench) -> None:
    await task_with(bench, "https://one.example/a", "https://two.example/b")
    first, second = sorted(await claim(bench), key=lambda one: one.config_id)
    assert (first.seq, second.seq) == (3, 3)
    for seq in (3, 4, 5, 6, 7):
        assert second.seq == seq
        assert await deliveries.delivered(bench.db, second, 200)
        second = next(iter(await claim(bench)), second)
    assert [row.state for row in await rows(bench) if row.key.config_id == "c0"] == ["pending"] * 5


async def test_a_claim_takes_so_many_of_each_receiver(bench: Bench) -> None:
    for _ in range(4):
        await task_with(bench, "https://one.example/a", chunks=0)
    await task_with(bench, "https://two.example/b", chunks=0)
    one = ("a", ONE)
    taken = await claim(bench, per_receiver=3, busy={one: 1, ("a", "https://none.example:443"): 9})
    assert sorted(delivery.destination for delivery in taken) == [ONE, ONE, TWO]
    assert {delivery.receiver for delivery in taken} == {one, ("a", TWO)}
    assert await claim(bench, per_receiver=3, busy={one: 3}) == []
    assert await claim(bench, per_receiver=3, busy={one: 7}) == []
    assert [delivery.destination for delivery in await claim(bench, busy={("b", ONE): 100})] == [ONE, ONE]


async def test_tenants_that_call_one_host_do_not_stand_in_each_others_way(bench: Bench) -> None:
    other = replace(bench, tenant="b")
    for _ in range(4):
        await task_with(bench, "https://one.example/a", chunks=0)
    await task_with(other, "https://one.example/b", chunks=0)
    taken = await claim(bench, per_receiver=2, limit=3)
    assert sorted(delivery.tenant for delivery in taken) == ["a", "a", "b"]
    await task_with(other, "https://one.example/b", chunks=0)
    assert [one.tenant for one in await claim(bench, avoid=(("a", ONE),))] == ["b"]
    await task_with(other, "https://one.example/b", chunks=0)
    assert [one.tenant for one in await claim(bench, full=("a",))] == ["b"]
    assert [one.tenant for one in await claim(bench)] == ["a", "a"]


async def test_the_receiver_that_waited_longest_comes_first_and_avoided_ones_not_at_all(bench: Bench) -> None:
    await task_with(bench, "https://two.example/b", chunks=0)
    await task_with(bench, "https://one.example/a", chunks=0)
    assert await claim(bench, avoid=(("a", ONE), ("a", TWO))) == []
    assert [one.destination for one in await claim(bench, limit=1, hold=0)] == [TWO]
    assert [one.destination for one in await claim(bench, limit=1)] == [ONE], "the other's hold ended later"
    assert [one.destination for one in await claim(bench, avoid=(("a", TWO),))] == []


async def aged(bench: Bench, task_id: UUID, days: int, *, before: int = 100) -> None:
    """The task's events with seqs less than ``before`` are that much older."""
    async with bench.db.tenant(bench.tenant) as connection:
        await connection.execute(
            "UPDATE deliveries SET created_at = created_at - $4 * interval '1 day'"
            " WHERE tenant_id = $1 AND task_id = $2 AND seq < $3",
            *(bench.tenant, task_id, before, days),
        )


async def give_up(bench: Bench, limit: int = 100) -> int:
    return await deliveries.give_up(bench.db, ("a", ONE), older_seconds=86400, error="no answer", limit=limit)


async def test_a_claimed_delivery_says_how_old_its_event_is(bench: Bench) -> None:
    await aged(bench, await task_with(bench), 2)
    assert 2 * 86400 <= (await take(bench)).age_seconds < 3 * 86400


async def test_what_became_too_old_for_a_receiver_that_does_not_answer_is_dead(bench: Bench) -> None:
    held, old, half, young = [await task_with(bench) for _ in range(4)]
    elsewhere = await task_with(bench, "https://two.example/b")
    foreign = await task_with(replace(bench, tenant="b"))
    for task in (held, old, elsewhere):
        await aged(bench, task, 2)
    await aged(replace(bench, tenant="b"), foreign, 2)
    await aged(bench, half, 2, before=5)
    (under_way,) = await claim(bench, limit=1)
    assert under_way.task_id == held
    assert await give_up(bench) == 7
    assert {(row.state, row.last_error, row.attempts) for row in await rows(bench, old)} == {("dead", "no answer", 0)}
    assert [row.state for row in await rows(bench, half)] == ["dead", "dead", "pending", "pending", "pending"]
    assert [seq for seq, _ in await due(bench, half)] == [5], "the line goes on with what is not too old"
    for bench_of, task in ((bench, held), (bench, young), (bench, elsewhere), (replace(bench, tenant="b"), foreign)):
        assert {row.state for row in await rows(bench_of, task)} == {"pending"}
    assert await give_up(bench) == 0
    assert await deliveries.delivered(bench.db, under_way, 200)


async def test_giving_up_goes_on_to_the_end_in_small_steps(bench: Bench) -> None:
    tasks = [await task_with(bench) for _ in range(3)]
    for task in tasks:
        await aged(bench, task, 2)
    steps = [await give_up(bench, limit=2) for _ in range(10)]
    assert (sum(steps), max(steps), steps[-1]) == (15, 4, 0)
    assert {row.state for row in await rows(bench)} == {"dead"}


@pytest.mark.parametrize("ended", ["delivered", "dead"])
async def test_a_redelivery_stands_beside_its_line(bench: Bench, ended: str) -> None:
    task_id = await task_with(bench)
    one = await take(bench, 3)
    assert await deliveries.redeliver(bench.db, "a", one.key) == StillPending()
    if ended == "dead":
        assert await retry(bench, one, None)
    else:
        assert await deliveries.delivered(bench.db, one, 200)
    assert await deliveries.redeliver(bench.db, "a", one.key) == Redelivered()
    again, head = sorted(await claim(bench), key=lambda one: one.seq)
    assert (again.seq, again.attempt, again.id, head.seq) == (3, 1, one.id, 4)
    assert not await deliveries.delivered(bench.db, one, 200), "the answer to the first one came late"
    assert await retry(bench, again, 3600)
    assert await deliveries.delivered(bench.db, head, 200)
    assert await drain(bench) == [("c0", 5), ("c0", 6), ("c0", 7)], "the line does not wait for it"
    assert [row.key.seq for row in await rows(bench, task_id, "pending")] == [3]


async def test_a_redelivery_that_ends_moves_no_line(bench: Bench) -> None:
    task_id = await task_with(bench)
    one = await take(bench, 3)
    assert await deliveries.delivered(bench.db, one, 200)
    held = await take(bench, 4)
    await deliveries.redeliver(bench.db, "a", one.key)
    assert await deliveries.delivered(bench.db, await take(bench, 3), 200)
    assert await claim(bench) == [], "the head is held as before"
    assert [seq for seq, _ in await due(bench, task_id)] == [4]
    assert await deliveries.delivered(bench.db, held, 200)


async def test_what_cannot_be_redelivered(bench: Bench) -> None:
    task_id = await task_with(bench)
    one = await take(bench, 3)
    await deliveries.delivered(bench.db, one, 200)
    assert await deliveries.redeliver(bench.db, "b", one.key) == DeliveryMissing()
    assert await deliveries.redeliver(bench.db, "a", DeliveryId(uuid4(), 3, "c0")) == DeliveryMissing()
    assert await deliveries.redeliver(bench.db, "a", DeliveryId(task_id, 2, "c0")) == DeliveryMissing()
    await push_configs.delete(bench.db, "a", task_id, "c0")
    assert await deliveries.redeliver(bench.db, "a", one.key) == DeliveryMissing()


async def test_the_list_is_the_tenants_by_state_and_task_page_by_page(bench: Bench) -> None:
    older, newer = await task_with(bench), await task_with(bench)
    await task_with(Bench(bench.db, tenant="b"))
    await deliveries.delivered(bench.db, (await claim(bench, limit=1))[0], 200)
    every = [(row.key.task_id, row.key.seq) for row in await deliveries.list_deliveries(bench.db, "a")]
    assert every == [(task, seq) for task in (newer, older) for seq in (7, 6, 5, 4, 3)]
    paged: list[tuple[UUID, int]] = []
    after: DeliveryId | None = None
    while page := await deliveries.list_deliveries(bench.db, "a", after=after, limit=3):
        paged += [(row.key.task_id, row.key.seq) for row in page]
        after = page[-1].key
    assert paged == every
    assert len(await deliveries.list_deliveries(bench.db, "a", state="pending")) == 9
    assert [row.key.task_id for row in await deliveries.list_deliveries(bench.db, "a", state="delivered")] == [older]
    assert len(await deliveries.list_deliveries(bench.db, "a", task_id=newer)) == 5
    one = await deliveries.get(bench.db, "a", DeliveryId(older, 3, "c0"))
    assert one is not None
    assert one.state == "delivered"
    assert await deliveries.get(bench.db, "b", one.key) is None


async def test_purge_forgets_what_ended_long_ago_and_nothing_else(bench: Bench) -> None:
    await task_with(bench)
    await deliveries.delivered(bench.db, await take(bench, 3), 200)
    await retry(bench, await take(bench, 4), None)
    assert await deliveries.purge(bench.db, "a", state="delivered", older_seconds=3600, limit=10) == 0
    assert await deliveries.purge(bench.db, "b", state="delivered", older_seconds=-60, limit=10) == 0
    assert await deliveries.purge(bench.db, "a", state="delivered", older_seconds=-60, limit=10) == 1
    assert [row.key.seq for row in await rows(bench)] == [4, 5, 6, 7]
    assert await deliveries.purge(bench.db, "a", state="dead", older_seconds=-60, limit=10) == 1
    assert [row.state for row in await rows(bench)] == ["pending"] * 3


async def test_the_process_that_made_a_delivery_due_is_told_after_the_commit(bench: Bench) -> None:
    told: list[str] = []
    bench.db.on_deliveries = lambda: told.append("due")
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.append(lease, chunk("x"))
    assert told == [], "nobody is to be notified"
    await configure(bench, task_id, config())
    assert told == []
    await bench.append(lease, chunk("x"))
    assert told == ["due"]
    await bench.append(lease, chunk("x"))
    assert told == ["due"], "what waits behind another is not due"
    one = await take(bench, 5)
    await deliveries.delivered(bench.db, one, 200)
    await deliveries.redeliver(bench.db, "a", one.key)
    assert told == ["due", "due"]


@pytest.mark.parametrize(
    "text",
    ["", "x", "1:2", f"{UUID(int=1)}:2", f"{UUID(int=1)}:-2:c", f"{UUID(int=1)}:02:c", f"{UUID(int=1)}:²:c",
     f"{UUID(int=1).hex}:2:c", f"{UUID(int=1)}:{10**19}:c"],
)  # fmt: skip
def test_what_is_no_delivery_id(text: str) -> None:
    assert DeliveryId.parse(text) is None


def test_a_delivery_id_may_have_colons_in_its_config() -> None:
    key = DeliveryId(UUID(int=7), 12, "a:b:c")
    assert DeliveryId.parse(str(key)) == key


async def test_seqs_of_two_configs(bench: Bench) -> None:
    """A config made later hears of the later events only."""
    task_id = (await submit_with(bench, config("early"))).task_id
    lease = await bench.claim_one()
    await configure(bench, task_id, config("late"))
    await bench.append(lease, status(TaskState.COMPLETED))
    assert (await seqs(bench, task_id, "early"), await seqs(bench, task_id, "late")) == ([3, 4], [4])
