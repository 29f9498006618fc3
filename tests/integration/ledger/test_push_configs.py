"""Push notification configs in the ledger: made, replaced, paged, deleted; and which events they hear of."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from app.auth.vault import Vault, VaultError
from app.execution.worker_events import MAX_EVENTS
from app.ledger import deliveries, push_configs, transitions, webhook_secrets
from app.ledger.deliveries import Delivery, DeliveryId
from app.ledger.push_configs import MAX_PER_TASK, PushConfigSet, PushSecret, TooManyConfigs
from app.ledger.rows import Due, IdempotencyClash, Sent, TaskMissing
from app.protocol.events import A2A_HIDDEN, EventKind
from app.protocol.states import TaskState
from tests.integration.ledger.outbox import claim, config, configure, drain, rows, send_with, seqs, submit_with
from tests.support.ledger import QUICK, Bench, chunk, key_of, reply, status

VAULT = Vault([b"k" * 32])


async def took(bench: Bench, one: Delivery) -> bool:
    return await deliveries.delivered(bench.db, one, 200)


async def shown(bench: Bench, task_id: UUID) -> list[int]:
    """The seqs that a config made at the submit hears of: all that A2A doors show."""
    return [event.seq for event in await bench.log(task_id) if event.kind not in A2A_HIDDEN and event.seq > 1]


async def test_sql_and_python_agree_on_what_a2a_doors_show(bench: Bench) -> None:
    for kind in EventKind:
        row = await bench.db.call("SELECT is_shown($1) AS shown", kind.value)
        assert row["shown"] == (kind not in A2A_HIDDEN)


async def test_a_config_is_stored_read_and_listed_by_id(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    for config_id in ("b", "a", "ü", "c"):
        assert await configure(bench, task_id, config(config_id, secret=b"sealed")) == PushConfigSet()
    one = await push_configs.get(bench.db, "a", task_id, "b")
    assert one is not None
    assert (one.config_id, one.url, one.from_seq, one.created_by) == ("b", "https://one.example/hook", 2, "u1")
    listed = await push_configs.list_configs(bench.db, "a", task_id)
    assert [one.config_id for one in listed] == ["a", "b", "c", "ü"]
    page = await push_configs.list_configs(bench.db, "a", task_id, after="a", limit=2)
    assert [one.config_id for one in page] == ["b", "c"]
    assert await push_configs.target(bench.db, "a", task_id, "b") == config("b", secret=b"sealed")
    assert await push_configs.target(bench.db, "a", task_id, "none") is None


async def test_no_config_for_a_task_of_nobody_or_of_another_agent(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    assert await configure(bench, uuid4(), config()) == TaskMissing()
    assert await configure(bench, task_id, config(), agent="another") == TaskMissing()
    other = Bench(bench.db, tenant="b")
    assert await configure(other, task_id, config()) == TaskMissing()
    assert await push_configs.list_configs(bench.db, "a", task_id) == []
    await configure(bench, task_id, config())
    assert await push_configs.get(other.db, "b", task_id, "c") is None
    await push_configs.delete(other.db, "b", task_id, "c")
    assert await push_configs.get(bench.db, "a", task_id, "c") is not None


async def test_a_task_has_so_many_configs_and_no_more(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    for number in range(MAX_PER_TASK):
        assert await configure(bench, task_id, config(f"c{number}")) == PushConfigSet()
    assert await configure(bench, task_id, config("one more")) == TooManyConfigs()
    assert await configure(bench, task_id, config("c7", "https://two.example/x")) == PushConfigSet(), (
        "replaced, not added"
    )
    assert await send_with(bench, task_id, config("one more")) == TooManyConfigs()
    assert await bench.kinds(task_id) == ["task.submitted"], "a refused message stores nothing"
    await push_configs.delete(bench.db, "a", task_id, "c3")
    assert await configure(bench, task_id, config("one more")) == PushConfigSet()


async def test_a_config_hears_of_every_event_after_its_creation(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    lease = await bench.claim_one()
    await bench.append(lease, chunk("before"))
    await configure(bench, task_id, config())
    await bench.append(lease, chunk("x"), chunk("y", append=True), status(TaskState.WORKING))
    await bench.append(lease, chunk("z", append=True, last=True), status(TaskState.COMPLETED, text="done"))
    assert await seqs(bench, task_id) == [5, 6, 7, 8, 9]
    bodies = {event.seq: event.body for event in await bench.log(task_id)}
    order: list[int] = []
    while taken := await claim(bench):
        (one,) = taken
        assert one.body == bodies[one.seq].encode()
        order.append(one.seq)
        assert await took(bench, one)
    assert order == [5, 6, 7, 8, 9]


async def test_the_largest_batch_is_stored_whatever_a_client_has_configured(bench: Bench) -> None:
    """Else a client could keep an agent's worker from writing: its batch would be refused for ever."""
    task_id = (await bench.submit()).task_id
    for number in range(MAX_PER_TASK):
        await configure(bench, task_id, config(f"c{number:02}"))
    lease = await bench.claim_one()
    await bench.append(lease, *(chunk("x", append=number > 0) for number in range(MAX_EVENTS)))
    assert await seqs(bench, task_id, "c31") == [*range(3, 4 + MAX_EVENTS)]


async def course_of_turns(bench: Bench, task_id: UUID) -> None:
    """A pause, a follow-up, a queued turn, a retry, a direct reply."""
    lease = await bench.claim_one()
    await bench.append(lease, status(TaskState.INPUT_REQUIRED))
    await bench.send(task_id, "answer")
    lease = await bench.claim_one()
    await bench.send(task_id, "queued")
    await transitions.retry(bench.db, lease=key_of(lease), error="x", delay_seconds=0)
    lease = await bench.claim_one()
    await bench.append(lease, status(TaskState.COMPLETED))
    lease = await bench.claim_one()
    await bench.append(lease, reply())


async def course_of_a_bare_pause_with_a_turn_queued(bench: Bench, task_id: UUID) -> None:
    lease = await bench.claim_one()
    await bench.send(task_id, "queued")
    await bench.append(lease, status(TaskState.INPUT_REQUIRED))
    lease = await bench.claim_one()
    await transitions.release(bench.db, lease=key_of(lease), delay_seconds=0)
    await bench.cancel(task_id)


async def course_of_a_cancel(bench: Bench, task_id: UUID) -> None:
    lease = await bench.claim_one()
    await bench.cancel(task_id)
    assert await transitions.end_due(bench.db, Due("a", task_id, lease.fence, "cancel")) is not None


async def course_of_a_cancel_that_meets_a_pause(bench: Bench, task_id: UUID) -> None:
    lease = await bench.claim_one()
    await bench.cancel(task_id)
    await bench.append(lease, chunk("x"), status(TaskState.INPUT_REQUIRED))


async def course_of_expiry(bench: Bench, task_id: UUID) -> None:
    for _ in range(QUICK.max_attempts):
        await bench.claim_one(seconds=0)
        assert await bench.reap() == ["expired"]


async def course_of_the_forgotten(bench: Bench, task_id: UUID) -> None:
    await bench.append(await bench.claim_one(), status(TaskState.AUTH_REQUIRED))
    assert await transitions.forget(bench.db, tenant="a", older_seconds=0, limit=5) == [task_id]


async def course_of_a_deleted_agent(bench: Bench, task_id: UUID) -> None:
    assert await transitions.fail_deleted(bench.db, tenant="a", task_id=task_id)


COURSES = [value for name, value in sorted(globals().items()) if name.startswith("course_")]


@pytest.mark.parametrize("course", COURSES, ids=[course.__name__ for course in COURSES])
async def test_every_way_to_write_an_event_notifies(bench: Bench, course: object) -> None:
    """a2a-java#594, in the ledger: whatever writes an event that clients see writes it into the outbox too."""
    sent = await submit_with(bench, config())
    assert callable(course)
    await course(bench, sent.task_id)
    log = await bench.log(sent.task_id)
    assert log[-1].seq == (await bench.load(sent.task_id)).head.terminal_seq
    expected = await shown(bench, sent.task_id)
    assert await seqs(bench, sent.task_id) == expected
    assert await drain(bench) == [("c", seq) for seq in expected]


async def test_an_inline_config_is_made_with_the_message_and_once(bench: Bench) -> None:
    first = await submit_with(bench, config(), "m-1")
    again = await submit_with(bench, config("other", "https://two.example/x"), "m-1")
    assert isinstance(first, Sent)
    assert (again.task_id, again.replayed) == (first.task_id, True)
    (one,) = await push_configs.list_configs(bench.db, "a", first.task_id)
    assert (one.config_id, one.from_seq) == ("c", 2)
    assert await submit_with(bench, config("third"), "m-1", text="another body") == IdempotencyClash()


async def test_a_follow_up_adds_or_replaces_a_config(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    await bench.append(await bench.claim_one(), status(TaskState.INPUT_REQUIRED))
    sent = await send_with(bench, task_id, config(), "m-2")
    assert await send_with(bench, task_id, config("again"), "m-2") == replace(sent, replayed=True)
    assert await seqs(bench, task_id) == [6], "the WORKING that it caused"
    await send_with(bench, task_id, config("c", "https://two.example/x"))
    (one,) = await push_configs.list_configs(bench.db, "a", task_id)
    assert one.url == "https://two.example/x"


async def test_a_replaced_config_takes_what_is_pending_to_the_new_url_at_once(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    await configure(bench, task_id, config())
    await bench.append(await bench.claim_one(), status(TaskState.COMPLETED))
    (old,) = await claim(bench)
    await configure(bench, task_id, config("c", "https://two.example/x"))
    assert not await took(bench, old), "the old request no longer counts, whoever comes first"
    assert not await deliveries.failed(bench.db, old, status=410, error="x", retry_seconds=None)
    (new,) = await claim(bench)
    assert (new.seq, new.url, new.destination) == (old.seq, "https://two.example/x", "https://two.example:443")
    assert new.attempt == 1, "those at the old URL are not counted against the new one"
    assert not await took(bench, old)
    assert await took(bench, new)
    assert [(one.seq, one.url) for one in await claim(bench)] == [(4, "https://two.example/x")]


async def test_a_config_is_replaced_whatever_waits_for_it(bench: Bench) -> None:
    """One replaces it because a receiver is gone: nearly all of the 100,000 events that a task may have wait then."""
    task_id = (await bench.submit()).task_id
    await configure(bench, task_id, config())
    await bench.claim_one()
    async with bench.db.tenant("a") as connection:
        await connection.execute(
            "INSERT INTO deliveries (tenant_id, task_id, config_id, seq, destination, created_at)"
            " SELECT 'a', $1, 'c', seq, 'https://one.example:443', now() FROM generate_series(4, 100000) seq",
            task_id,
        )
    assert await configure(bench, task_id, config("c", "https://two.example/x")) == PushConfigSet()
    (head,) = await claim(bench)
    assert (head.seq, head.destination) == (3, "https://two.example:443")
    assert await took(bench, head)
    following = await deliveries.get(bench.db, "a", DeliveryId(task_id, 4, "c"))
    assert following is not None
    assert following.due_at is not None
    assert following.destination == "https://two.example:443", "what waited goes to the new one as well"


async def test_deleting_forgets_what_is_pending_and_keeps_what_was_delivered(bench: Bench) -> None:
    task_id = (await bench.submit()).task_id
    for name in ("c", "d"):
        await configure(bench, task_id, config(name))
    await bench.append(await bench.claim_one(), chunk("x"), status(TaskState.COMPLETED))
    taken = {one.config_id: one for one in await claim(bench)}
    assert await took(bench, taken["c"])
    (under_way,) = await claim(bench)
    assert under_way.config_id == "c"
    await push_configs.delete(bench.db, "a", task_id, "c")
    await push_configs.delete(bench.db, "a", task_id, "c")
    assert not await took(bench, under_way)
    kept = [(row.key.config_id, row.state) for row in await rows(bench, task_id)]
    assert kept == [("c", "delivered"), ("d", "pending"), ("d", "pending"), ("d", "pending")]


async def test_a_secret_opens_for_its_own_config_and_url_only() -> None:
    secret = PushSecret("token", "credentials")
    sealed = secret.seal(VAULT, tenant="a", config_id="c", url="https://one.example")
    assert sealed is not None
    assert b"credentials" not in sealed
    opened = PushSecret.open(VAULT, sealed, tenant="a", config_id="c", url="https://one.example")
    assert opened == secret
    for tenant, config_id, url in (("b", "c", "https://one.example"), ("a", "d", "https://one.example"),
                                   ("a", "c", "https://evil.example")):  # fmt: skip
        with pytest.raises(VaultError):
            PushSecret.open(VAULT, sealed, tenant=tenant, config_id=config_id, url=url)
    assert PushSecret().seal(VAULT, tenant="a", config_id="c", url="x") is None
    assert PushSecret.open(VAULT, None, tenant="a", config_id="c", url="x") == PushSecret()


async def test_signing_secrets_are_made_once_and_two_live_while_rotating(bench: Bench) -> None:
    (first,) = await webhook_secrets.live(bench.db, VAULT, "a")
    assert await webhook_secrets.live(bench.db, VAULT, "a") == [first]
    assert (len(first.key), first.expires_at) == (32, None)
    (others,) = await webhook_secrets.live(bench.db, VAULT, "b")
    assert others.key != first.key
    second, old = await webhook_secrets.rotate(bench.db, VAULT, "a", overlap_seconds=60)
    assert (old.key, second.expires_at) == (first.key, None)
    assert old.expires_at is not None
    third, old = await webhook_secrets.rotate(bench.db, VAULT, "a", overlap_seconds=60)
    assert old.key == second.key, "the first one is gone at once"
    assert [one.key for one in await webhook_secrets.live(bench.db, VAULT, "a")] == [third.key, second.key]
    (fourth,) = await webhook_secrets.rotate(bench.db, VAULT, "a", overlap_seconds=0)
    assert await webhook_secrets.live(bench.db, VAULT, "a") == [fourth]
    assert len({first.key, second.key, third.key, fourth.key}) == 4
    assert await webhook_secrets.live(bench.db, VAULT, "b") == [others]


async def test_racing_first_uses_make_one_signing_secret(bench: Bench) -> None:
    found = await asyncio.gather(*(webhook_secrets.live(bench.db, VAULT, "a") for _ in range(8)))
    assert len({tuple(secret.key for secret in live) for live in found}) == 1
    assert len(found[0]) == 1
