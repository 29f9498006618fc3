"""Heartbeat, retry, release, and the leases that have ended (native-api.md, Workers)."""

import asyncio
import time
from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.broker import BrokerProcess
from tests.support.calls import get_task, info, native_events, reason, send, violations
from tests.support.tokens import mint, worker_token
from tests.support.worker import LeaseWorker, status

Json = dict[str, Any]
EXTENSION = "https://waystation.dev/ext/resume/v1"


@pytest.fixture
async def lease(user: httpx.AsyncClient, agent: str, worker: LeaseWorker) -> Json:
    await send(user, agent)
    return await worker.lease_one()


async def beat(worker: LeaseWorker, *leases: Json, **fields: Any) -> list[Json]:
    answer = await worker.heartbeat(*leases, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


def until(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# Heartbeat -----------------------------------------------------------------------------------------------------------


async def test_a_heartbeat_extends_from_now(worker: LeaseWorker, lease: Json) -> None:
    (result,) = await beat(worker, lease)
    assert (result["leaseId"], result["ok"], result["signal"]) == (lease["leaseId"], True, None)
    assert until(result["expiresAt"]) > until(lease["expiresAt"])
    (longer,) = await beat(worker, lease, extendSeconds=300)
    assert until(longer["expiresAt"]) > until(result["expiresAt"]) + 200


async def test_a_lost_lease_says_why(user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json) -> None:
    await send(user, agent)
    other = await worker.lease_one()
    await worker.release(other)
    await worker.write(lease, status("COMPLETED"))
    ended, released = await beat(worker, lease, other)
    assert ended == {
        "leaseId": lease["leaseId"], "ok": False, "reason": "TASK_TERMINAL", "state": "TASK_STATE_COMPLETED",
    }  # fmt: skip
    assert released == {
        "leaseId": other["leaseId"], "ok": False, "reason": "LEASE_LOST", "state": "TASK_STATE_WORKING",
    }  # fmt: skip


async def test_results_stand_in_the_order_asked(user: httpx.AsyncClient, agent: str, worker: LeaseWorker) -> None:
    for _ in range(12):
        await send(user, agent)
    leases = await worker.lease(12)
    results = await beat(worker, *reversed(leases))
    assert [result["leaseId"] for result in results] == [lease["leaseId"] for lease in reversed(leases)]


async def test_a_waiting_heartbeat_hears_of_a_cancel_at_once(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    waiting = asyncio.create_task(beat(worker, lease, waitSeconds=20))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    start = time.monotonic()
    cancel = asyncio.create_task(user.post(f"/agents/{agent}/a2a/tasks/{lease['taskId']}:cancel", json={}))
    (result,) = await waiting
    assert (result["ok"], result["signal"]) == (True, "cancel")
    assert time.monotonic() - start < 2
    answer = await worker.write(lease, status("CANCELED", "stopped"))
    assert answer["state"] == "TASK_STATE_CANCELED"
    assert (await cancel).json()["status"]["state"] == "TASK_STATE_CANCELED"


async def test_the_answer_to_a_write_carries_the_signal(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    cancel = asyncio.create_task(user.post(f"/agents/{agent}/a2a/tasks/{lease['taskId']}:cancel", json={}))
    while (await beat(worker, lease))[0]["signal"] is None:
        await asyncio.sleep(0.01)
    assert (await worker.write(lease, status("WORKING", "wait")))["signal"] == "cancel"
    await worker.write(lease, status("CANCELED"))
    assert (await cancel).status_code == 200


async def test_a_worker_that_ignores_the_cancel_is_overruled(
    shared_broker: BrokerProcess, user: httpx.AsyncClient, worker: LeaseWorker, agent: str
) -> None:
    shared_broker.register_agent(agent, cancelGraceSeconds=0.5)
    await send(user, agent)
    lease = await worker.lease_one()
    waiting = asyncio.create_task(beat(worker, lease, waitSeconds=20))
    start = time.monotonic()
    answer = await user.post(f"/agents/{agent}/a2a/tasks/{lease['taskId']}:cancel", json={})
    assert answer.json()["status"]["state"] == "TASK_STATE_CANCELED"
    assert 0.4 < time.monotonic() - start < 3
    await waiting
    late = await worker.events(lease, status("COMPLETED"))
    assert (late.status_code, info(late)["metadata"]["state"]) == (409, "TASK_STATE_CANCELED")
    assert (await get_task(user, agent, lease["taskId"]))["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_waiting_heartbeat_ends_with_its_time_or_with_its_lease(worker: LeaseWorker, lease: Json) -> None:
    start = time.monotonic()
    (result,) = await beat(worker, lease, waitSeconds=1)
    assert result["ok"]
    assert 0.9 < time.monotonic() - start < 4
    waiting = asyncio.create_task(beat(worker, lease, waitSeconds=20))
    await asyncio.sleep(0.2)
    start = time.monotonic()
    await worker.write(lease, status("COMPLETED"))
    (result,) = await waiting
    assert (result["ok"], result["reason"]) == (False, "TASK_TERMINAL")
    assert time.monotonic() - start < 2


async def test_a_waiting_heartbeat_extends_only_at_its_start(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker
) -> None:
    """A worker that was stopped while its long poll waits must not keep its leases through the broker."""
    await send(user, agent)
    lease = await worker.lease_one(leaseSeconds=1)
    (result,) = await beat(worker, lease, waitSeconds=15)
    assert (result["ok"], result["reason"]) == (False, "LEASE_LOST")
    again = await worker.lease_one()
    assert (again["taskId"], again["attempt"]) == (lease["taskId"], 2)


async def test_foreign_and_garbage_lease_ids_are_not_found(
    shared_broker: BrokerProcess, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    lease_id = lease["leaseId"]
    changed = lease_id[:-1] + ("A" if lease_id[-1] != "A" else "B")
    bodies: set[bytes] = set()
    for garbage in (changed, "x", "~", lease_id + "AAAA", "%00", "a" * 3000, lease["taskId"]):
        for path in ("events", "retry", "release"):
            answer = await worker.http.post(f"/v1/leases/{garbage}/{path}", content=b"not JSON")
            assert answer.status_code == 404, (garbage, path, answer.text)
            bodies.add(answer.content)
        answer = await worker.http.post("/v1/leases/heartbeat", json={"leaseIds": [garbage, garbage]})
        assert answer.status_code == 404
        bodies.add(answer.content)
    tokens = [worker_token("b", agent), worker_token("a", "other"), mint("a", "w", "worker:lease")]
    for token in tokens:
        async with LeaseWorker(shared_broker.base_url, agent, token=token) as stranger:
            for answer in (
                await stranger.events(lease, status("COMPLETED")),
                await stranger.retry(lease, "x"),
                await stranger.release(lease),
                await stranger.heartbeat(lease),
            ):
                assert answer.status_code == 404
                bodies.add(answer.content)
    assert len(bodies) == 1
    assert (await beat(worker, lease))[0]["ok"], "the lease is untouched"


async def test_an_unknown_lease_among_others_is_a_lost_one(
    shared_broker: BrokerProcess, user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    other = f"{agent}-2"
    shared_broker.register_agent(other)
    await send(user, other)
    async with LeaseWorker(shared_broker.base_url, other) as stranger:
        foreign = await stranger.lease_one()
    garbage = {"leaseId": "x"}
    start = time.monotonic()
    first, own, last = await beat(worker, garbage, lease, foreign, waitSeconds=20)
    assert time.monotonic() - start < 10, "it is news, so nobody waits"
    for result, asked in ((first, garbage), (last, foreign)):
        assert result == {"leaseId": asked["leaseId"], "ok": False, "reason": "LEASE_LOST", "state": None}
    assert own["ok"]
    assert until(own["expiresAt"]) > until(lease["expiresAt"])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "leaseIds"),
        ({"leaseIds": []}, "leaseIds"),
        ({"leaseIds": "x"}, "leaseIds"),
        ({"leaseIds": [1]}, "leaseIds[0]"),
        ({"leaseIds": ["x"] * 501}, "leaseIds"),
        ({"leaseIds": ["x"], "waitSeconds": 21}, "waitSeconds"),
        ({"leaseIds": ["x"], "extendSeconds": 0}, "extendSeconds"),
    ],
)
async def test_bad_heartbeats(worker: LeaseWorker, body: Json, field: str) -> None:
    answer = await worker.http.post("/v1/leases/heartbeat", json=body)
    assert (answer.status_code, reason(answer)) == (400, "INVALID_ARGUMENT")
    assert set(violations(answer)) == {field}


# Retry and release ---------------------------------------------------------------------------------------------------


async def test_retry_queues_again_until_the_attempts_are_used_up(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    task_id = lease["taskId"]
    for attempt in (1, 2):
        assert lease["attempt"] == attempt
        answer = await worker.retry(lease, f"boom {attempt}", delaySeconds=0)
        assert answer.status_code == 200
        assert answer.json()["state"] == "TASK_STATE_WORKING"
        again = await worker.retry(lease, f"boom {attempt}", delaySeconds=0)
        assert again.json() == answer.json(), "the same again under the same fence"
        fence, lease = lease["fence"], await worker.lease_one()
        assert lease["fence"] > fence
    answer = await worker.retry(lease, "boom 3")
    assert answer.json()["state"] == "TASK_STATE_FAILED"
    task = await get_task(user, agent, task_id)
    assert "boom 3" in task["status"]["message"]["parts"][0]["text"]
    events = await native_events(user, task_id)
    assert answer.json()["lastSeq"] == events[-1]["seq"]
    reasons = [
        event["statusUpdate"].get("metadata", {}).get(EXTENSION, {}).get("error")
        for event in events
        if event["kind"] == "status"
    ]
    assert [text for text in reasons if text] == ["boom 1", "boom 2"]


async def test_a_delayed_retry_waits(worker: LeaseWorker, lease: Json) -> None:
    start = time.monotonic()
    assert (await worker.retry(lease, "later", delaySeconds=1.5)).status_code == 200
    assert await worker.lease(wait=0) == []
    again = await worker.lease_one(wait=20)
    assert again["attempt"] == 2
    assert 1.4 < time.monotonic() - start < 8


async def test_release_is_not_counted_and_says_nothing(
    user: httpx.AsyncClient, worker: LeaseWorker, lease: Json
) -> None:
    before = await native_events(user, lease["taskId"])
    answer = await worker.release(lease)
    assert answer.status_code == 200
    assert (await worker.release(lease)).json() == answer.json()
    assert await native_events(user, lease["taskId"]) == before
    again = await worker.lease_one()
    assert (again["attempt"], again["taskId"]) == (1, lease["taskId"])
    assert again["fence"] > lease["fence"]


async def test_an_empty_release_body_is_fine(worker: LeaseWorker, lease: Json) -> None:
    assert (await worker.http.post(f"/v1/leases/{lease['leaseId']}/release")).status_code == 200


async def test_a_released_lease_writes_nothing_any_more(
    user: httpx.AsyncClient, worker: LeaseWorker, lease: Json
) -> None:
    await worker.release(lease)
    before = await native_events(user, lease["taskId"])
    for answer in (
        await worker.events(lease, status("COMPLETED")),
        await worker.events(lease, {"producerEventId": uuid4().hex} | status("WORKING")),
        await worker.retry(lease, "x"),
    ):
        assert (answer.status_code, reason(answer)) == (409, "LEASE_LOST")
        assert info(answer)["metadata"] == {"state": "TASK_STATE_WORKING", "lastSeq": str(before[-1]["seq"])}
    assert await native_events(user, lease["taskId"]) == before


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("retry", {}, "error"),
        ("retry", {"error": ""}, "error"),
        ("retry", {"error": "x", "delaySeconds": -1}, "delaySeconds"),
        ("release", {"delaySeconds": "1"}, "delaySeconds"),
    ],
)
async def test_bad_ends(worker: LeaseWorker, lease: Json, path: str, body: Json, field: str) -> None:
    answer = await worker.http.post(f"/v1/leases/{lease['leaseId']}/{path}", json=body)
    assert (answer.status_code, set(violations(answer))) == (400, {field})
    assert (await beat(worker, lease))[0]["ok"]


async def test_a_very_long_error_is_cut(user: httpx.AsyncClient, worker: LeaseWorker, lease: Json) -> None:
    assert (await worker.retry(lease, "x" * 100_000, delaySeconds=0)).status_code == 200
    last = (await native_events(user, lease["taskId"]))[-1]
    assert len(last["statusUpdate"]["metadata"][EXTENSION]["error"]) == 4096


# Expiry --------------------------------------------------------------------------------------------------------------


async def test_an_expired_lease_is_reaped_and_its_words_are_refused(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker
) -> None:
    """Scenario 27 of the resume contract, over the wire."""
    await send(user, agent)
    lease = await worker.lease_one(leaseSeconds=1)
    async with asyncio.timeout(15):
        while (await native_events(user, lease["taskId"]))[-1]["seq"] == lease["lastSeq"]:
            await asyncio.sleep(0.1)
    before = await native_events(user, lease["taskId"])
    assert before[-1]["actor"]["kind"] == "broker"
    late = await worker.events(lease, status("COMPLETED"))
    assert (late.status_code, reason(late)) == (409, "LEASE_LOST")
    assert (await beat(worker, lease))[0]["reason"] == "LEASE_LOST"
    assert (await worker.retry(lease, "x")).status_code == 409
    assert await native_events(user, lease["taskId"]) == before
    again = await worker.lease_one()
    assert (again["attempt"], again["turn"]) == (2, 1)
    await worker.write(again, status("COMPLETED"))


async def test_deadlines_signal_then_fail(
    shared_broker: BrokerProcess, user: httpx.AsyncClient, agent: str, worker: LeaseWorker
) -> None:
    shared_broker.register_agent(agent, deadlineSeconds=1, cancelGraceSeconds=0.5)
    await send(user, agent)
    lease = await worker.lease_one()
    (result,) = await beat(worker, lease, waitSeconds=15)
    assert result["signal"] == "deadline"
    async with asyncio.timeout(15):
        while (await get_task(user, agent, lease["taskId"]))["status"]["state"] != "TASK_STATE_FAILED":
            await asyncio.sleep(0.1)
    last = (await native_events(user, lease["taskId"]))[-1]
    assert last["statusUpdate"]["metadata"][EXTENSION]["reason"] == "DEADLINE_EXCEEDED"


async def test_a_task_that_nobody_takes_in_time_fails(
    shared_broker: BrokerProcess, user: httpx.AsyncClient, agent: str
) -> None:
    shared_broker.register_agent(agent, queueTimeoutSeconds=1)
    task = await send(user, agent, wait=True)
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["metadata"][EXTENSION]["reason"] == "QUEUE_TIMEOUT"
