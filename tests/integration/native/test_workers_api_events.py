"""A worker's events over a real socket: what is accepted, filled in and refused (native-api.md, Workers)."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.calls import get_task, info, native_events, reason, send, violations
from tests.support.worker import LeaseWorker, artifact, status

Json = dict[str, Any]
EXTENSION = "https://waystation.dev/ext/resume/v1"


@pytest.fixture
async def lease(user: httpx.AsyncClient, agent: str, worker: LeaseWorker) -> Json:
    await send(user, agent)
    return await worker.lease_one()


async def test_a_batch_is_stored_in_order_and_completed(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    answer = await worker.write(
        lease,
        status("WORKING", "on it"),
        artifact("stock", "A:"),
        artifact("stock", "3", append=True, last=True),
        status("COMPLETED", "done"),
    )
    assert answer == {
        "seqs": [4, 5, 6, 7],
        "state": "TASK_STATE_COMPLETED",
        "lastSeq": 7,
        "turnEnded": False,
        "leaseEnded": True,
        "duplicates": [],
        "signal": None,
    }
    events = await native_events(user, lease["taskId"])
    assert [event["kind"] for event in events[3:]] == ["status", "artifact.replace", "artifact.delta", "status"]
    for event in events[3:]:
        body = event.get("statusUpdate") or event["artifactUpdate"]
        assert (body["taskId"], body["contextId"]) == (lease["taskId"], lease["contextId"])
        assert event["actor"] == {"kind": "worker", "id": worker.worker_id}
    message = events[3]["statusUpdate"]["status"]["message"]
    assert (message["taskId"], message["contextId"], message["role"]) == (
        lease["taskId"],
        lease["contextId"],
        "ROLE_AGENT",
    )
    assert events[3]["statusUpdate"]["status"]["timestamp"].endswith("Z")
    task = await get_task(user, agent, lease["taskId"])
    parts = [{"text": "A:"}, {"text": "3"}]
    assert task["artifacts"] == [{"artifactId": "stock", "parts": parts, "metadata": {EXTENSION: {"attempt": 1}}}]


async def test_append_false_replaces(user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json) -> None:
    await worker.write(lease, artifact("stock", "A:"), artifact("stock", "3", last=True), status("COMPLETED"))
    task = await get_task(user, agent, lease["taskId"])
    marked = {EXTENSION: {"attempt": 1}}
    assert task["artifacts"] == [{"artifactId": "stock", "parts": [{"text": "3"}], "metadata": marked}]


async def test_an_artifact_is_marked_with_its_attempt(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    given = {"mine": 1, EXTENSION: {"attempt": 7, "more": True}}
    await worker.write(lease, artifact("kept", "1", metadata=given), artifact("again", "1"))
    await worker.retry(lease, "boom", delaySeconds=0)
    second = await worker.lease_one()
    batch = [
        {"producerEventId": "e1"} | artifact("again", "2", metadata=given),
        {"producerEventId": "e2"} | artifact("kept", "3", append=True, metadata=given),
    ]
    first = await worker.write(second, *batch)
    assert await worker.write(second, *batch) == first | {"duplicates": [0, 1]}
    task = await get_task(user, agent, lease["taskId"])
    found = {one["artifactId"]: one["metadata"] for one in task["artifacts"]}
    assert found == {
        "kept": {"mine": 1, EXTENSION: {"attempt": 1}}, "again": {"mine": 1, EXTENSION: {"attempt": 2}},
    }  # fmt: skip
    await worker.retry(second, "boom", delaySeconds=0)
    third = await worker.lease_one()
    again = await worker.write(third, batch[0])
    assert again["duplicates"] == [0], "its hash is of what the worker sent, whichever attempt sends it"


async def test_a_message_without_an_id_gets_one_and_its_repeat_the_same(
    user: httpx.AsyncClient, worker: LeaseWorker, lease: Json
) -> None:
    bare = {"role": "ROLE_AGENT", "parts": [{"text": "x"}]}
    event = {"producerEventId": "e1", "statusUpdate": {"status": {"state": "TASK_STATE_WORKING", "message": bare}}}
    first = await worker.write(lease, event)
    again = await worker.write(lease, event)
    assert again["seqs"] == first["seqs"]
    assert again["duplicates"] == [0]
    (stored,) = [e for e in await native_events(user, lease["taskId"]) if e["seq"] in first["seqs"]]
    assert stored["statusUpdate"]["status"]["message"]["messageId"]


async def test_a_workers_timestamp_and_its_word_for_the_broker_are_dropped(
    user: httpx.AsyncClient, worker: LeaseWorker, lease: Json
) -> None:
    update = {
        "status": {"state": "TASK_STATE_WORKING", "timestamp": "1999-01-01T00:00:00Z"},
        "metadata": {EXTENSION: {"cancelRequestedAt": "x"}, "mine": 1},
    }
    answer = await worker.write(lease, {"statusUpdate": update})
    (stored,) = [e for e in await native_events(user, lease["taskId"]) if e["seq"] in answer["seqs"]]
    assert not stored["statusUpdate"]["status"]["timestamp"].startswith("1999")
    assert stored["statusUpdate"]["metadata"] == {"mine": 1}


async def test_snake_case_and_enum_numbers_are_read(worker: LeaseWorker, lease: Json) -> None:
    update = {"status": {"state": 2, "message": {"message_id": "m", "role": 2, "parts": [{"text": "x"}]}}}
    assert (await worker.write(lease, {"statusUpdate": update}))["state"] == "TASK_STATE_WORKING"


async def test_a_batch_resent_after_the_lease_ended_answers_its_old_seqs(
    user: httpx.AsyncClient, worker: LeaseWorker, lease: Json
) -> None:
    batch = [{"producerEventId": f"e{n}"} | event for n, event in enumerate((artifact("A", "1"), status("COMPLETED")))]
    first = await worker.write(lease, *batch)
    again = await worker.write(lease, *batch)
    assert again == first | {"duplicates": [0, 1]}
    assert len(await native_events(user, lease["taskId"])) == first["lastSeq"]


async def test_a_known_producer_event_id_with_another_body_is_a_conflict(worker: LeaseWorker, lease: Json) -> None:
    await worker.write(lease, {"producerEventId": "e1"} | artifact("A", "1"))
    answer = await worker.events(lease, {"producerEventId": "e1"} | artifact("A", "2"))
    assert (answer.status_code, reason(answer)) == (409, "PRODUCER_EVENT_CONFLICT")


async def test_all_or_nothing(user: httpx.AsyncClient, worker: LeaseWorker, lease: Json) -> None:
    answer = await worker.events(lease, status("WORKING"), artifact("unknown", "x", append=True))
    assert (answer.status_code, reason(answer)) == (400, "ARTIFACT_UNKNOWN")
    assert len(await native_events(user, lease["taskId"])) == lease["lastSeq"]


async def test_a_closed_artifact_takes_no_more_chunks(worker: LeaseWorker, lease: Json) -> None:
    await worker.write(lease, artifact("A", "1", last=True))
    answer = await worker.events(lease, artifact("A", "2", append=True))
    assert (answer.status_code, reason(answer)) == (400, "ARTIFACT_CLOSED")
    await worker.write(lease, artifact("A", "new"), artifact("A", "2", append=True))


async def test_a_direct_message_completes_the_task(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    message = {"messageId": uuid4().hex, "role": "ROLE_AGENT", "parts": [{"text": "pong"}]}
    answer = await worker.write(lease, {"message": message})
    assert (answer["state"], answer["leaseEnded"]) == ("TASK_STATE_COMPLETED", True)
    task = await get_task(user, agent, lease["taskId"])
    assert task["status"]["message"]["parts"] == [{"text": "pong"}]


async def test_a_direct_message_after_another_event_is_refused(worker: LeaseWorker, lease: Json) -> None:
    await worker.write(lease, status("WORKING"))
    message = {"messageId": uuid4().hex, "role": "ROLE_AGENT", "parts": [{"text": "pong"}]}
    answer = await worker.events(lease, {"message": message})
    assert (answer.status_code, reason(answer)) == (400, "INVALID_TRANSITION")


@pytest.mark.parametrize(
    "batch",
    [
        [status("COMPLETED"), status("WORKING")],
        [status("INPUT_REQUIRED", "?"), artifact("A", "1")],
        [status("SUBMITTED")],
        [{"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}}, status("WORKING")],
    ],
)
async def test_impossible_courses(worker: LeaseWorker, lease: Json, batch: list[Json]) -> None:
    answer = await worker.events(lease, *batch)
    assert (answer.status_code, reason(answer)) == (400, "INVALID_TRANSITION")


def _part(**part: Any) -> Json:
    return {"artifactUpdate": {"artifact": {"artifactId": "A", "parts": [part]}}}


@pytest.mark.parametrize(
    ("events", "field"),
    [
        (None, "events"),
        ([], "events"),
        ({}, "events"),
        ([1], "events[0]"),
        ([{}], "events[0]"),
        ([status("WORKING") | artifact("A", "x")], "events[0]"),
        ([{"statusUpdate": []}], "events[0].statusUpdate"),
        ([{"statusUpdate": {}}], "events[0].statusUpdate.status"),
        ([{"statusUpdate": {"status": {"state": "done"}}}], "events[0].statusUpdate.status.state"),
        ([{"producerEventId": "x" * 257} | status("WORKING")], "events[0].producerEventId"),
        ([{"producerEventId": 7} | status("WORKING")], "events[0].producerEventId"),
        ([{"producerEventId": "e"} | status("WORKING")] * 2, "events[1].producerEventId"),
        ([status("WORKING"), {"artifactUpdate": {"artifact": {"artifactId": "A", "parts": []}}}],
         "events[1].artifactUpdate.artifact.parts"),
        ([_part()], "events[0].artifactUpdate.artifact.parts[0]"),
        ([_part(text="a", url="b")], "events[0].artifactUpdate.artifact.parts[0]"),
        ([_part(raw="***")], "events[0].artifactUpdate.artifact.parts[0].raw"),
        ([{"statusUpdate": {"taskId": "another", "status": {"state": "TASK_STATE_WORKING"}}}],
         "events[0].statusUpdate.taskId"),
        ([{"artifactUpdate": {"context_id": "another", "artifact": {"artifactId": "A", "parts": [{"text": "x"}]}}}],
         "events[0].artifactUpdate.contextId"),
        ([{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}], "events[0].message.role"),
        ([{"message": {"messageId": "m", "taskId": "another", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}}],
         "events[0].message.taskId"),
        ([status("WORKING")] * 1001, "events"),
    ],
)  # fmt: skip
async def test_bad_batches(
    worker: LeaseWorker, lease: Json, user: httpx.AsyncClient, events: object, field: str
) -> None:
    answer = await worker.http.post(f"/v1/leases/{lease['leaseId']}/events", json={"events": events})
    assert (answer.status_code, reason(answer)) == (400, "INVALID_ARGUMENT"), answer.text
    assert field in violations(answer)
    assert len(await native_events(user, lease["taskId"])) == lease["lastSeq"]


@pytest.mark.parametrize("field", ["requiredActions", "allowUnresolved"])
async def test_what_is_not_built_is_refused(worker: LeaseWorker, lease: Json, field: str) -> None:
    answer = await worker.events(lease, status("INPUT_REQUIRED", "?") | {field: [{"kind": "input"}]})
    assert (answer.status_code, reason(answer)) == (400, "NOT_SUPPORTED")


@pytest.mark.parametrize(
    "body",
    [
        b'{"events":[{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING"}},"statusUpdate":{}}]}',
        b'{"events":[{"artifactUpdate":{"artifact":{"artifactId":"A","parts":[{"text":"\\u0000"}]}}}]}',
        b'{"events":[{"artifactUpdate":{"artifact":{"artifactId":"A","parts":[{"text":"\\ud800"}]}}}]}',
        b'{"events":[{"artifactUpdate":{"artifact":{"artifactId":"A","parts":[{"data":1e999}]}}}]}',
        b'{"events":[{"artifactUpdate":{"artifact":{"artifactId":"A","parts":[{"data":NaN}]}}}]}',
        b'{"events":' + b"[" * 100 + b"]" * 100 + b"}",
        b"",
        b"[]",
    ],
)
async def test_bad_json(worker: LeaseWorker, lease: Json, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await worker.http.post(f"/v1/leases/{lease['leaseId']}/events", content=body, headers=headers)
    assert answer.status_code == 400, answer.text


async def test_an_oversized_body_is_413(worker: LeaseWorker, lease: Json) -> None:
    answer = await worker.events(lease, artifact("A", "x" * (4 * 1024 * 1024)))
    assert (answer.status_code, reason(answer)) == (413, "PAYLOAD_TOO_LARGE")


async def test_separators_and_all_of_unicode_come_back_as_they_were(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    text = "a\u2028b\u2029c\u0085d\u00e9\U0001f600\r\n\t\\u0041"
    await worker.write(lease, artifact("A", text), status("COMPLETED"))
    task = await get_task(user, agent, lease["taskId"])
    assert task["artifacts"][0]["parts"] == [{"text": text}]


async def test_completed_with_a_turn_queued_ends_the_turn_only(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    await send(user, agent, "and then?", taskId=lease["taskId"])
    answer = await worker.write(lease, status("COMPLETED", "first done"))
    assert (answer["state"], answer["turnEnded"], answer["leaseEnded"]) == ("TASK_STATE_WORKING", True, True)
    second = await worker.lease_one()
    assert (second["taskId"], second["turn"], second["attempt"]) == (lease["taskId"], 2, 1)
    assert second["message"]["parts"] == [{"text": "and then?"}]
    assert second["fence"] > lease["fence"]
    late = await worker.events(lease, status("WORKING"))
    assert (late.status_code, reason(late)) == (409, "LEASE_LOST")
    answer = await worker.write(second, status("COMPLETED", "second done"))
    assert (answer["state"], answer["turnEnded"]) == ("TASK_STATE_COMPLETED", False)


async def test_late_words_after_a_cancel_are_told_who_won(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, lease: Json
) -> None:
    await worker.write(lease, status("CANCELED", "I stop unasked"))
    answer = await worker.events(lease, status("FAILED", "too late"))
    assert (answer.status_code, reason(answer)) == (409, "TASK_TERMINAL")
    assert info(answer)["metadata"] == {"state": "TASK_STATE_CANCELED", "terminalSeq": "4", "lastSeq": "4"}
    assert (await get_task(user, agent, lease["taskId"]))["status"]["state"] == "TASK_STATE_CANCELED"
