"""What the older dialect's door takes, refuses and remembers (legacy-tasks.md)."""

import httpx
import pytest

from tests.integration.legacy.clients import legacy_stream, naive, raw_events
from tests.support.broker import BrokerProcess
from tests.support.calls import get_task, reason, violations
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, artifact, status

Replicas = tuple[BrokerProcess, BrokerProcess]
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("", "skill"),
        ("{}", "skill"),
        ('{"skill": ""}', "skill"),
        ('{"skill": null}', "skill"),
        ('{"skill": ["x"]}', "skill"),
        ('{"skill": "x", "metadata": []}', "metadata"),
        ("[]", ""),
        ('"x"', ""),
    ],
)
async def test_a_bad_submission_is_400(http: httpx.AsyncClient, body: str, field: str) -> None:
    answer = await http.post("tasks", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, reason(answer)) == (400, "INVALID_PARAMS")
    assert field in violations(answer)


async def test_broken_json_and_another_media_type_are_400(http: httpx.AsyncClient) -> None:
    answer = await http.post("tasks", content='{"skill": ', headers={"Content-Type": "application/json"})
    assert (answer.status_code, reason(answer)) == (400, "PARSE_ERROR")
    answer = await http.post("tasks", content='{"skill": "x"}', headers={"Content-Type": "text/plain"})
    assert (answer.status_code, reason(answer)) == (400, "CONTENT_TYPE_NOT_SUPPORTED")


@pytest.mark.parametrize("character", ["x", "漢"])
async def test_input_and_metadata_have_at_most_1_mb(
    http: httpx.AsyncClient, worker: LeaseWorker, character: str
) -> None:
    """Together, in UTF-8; all that fits comes to the worker as it was."""
    room = MIB - len('""') - len('{"m":""}') - 300_000
    given = {"input": character * (room // len(character.encode())), "metadata": {"m": "m" * 300_000}}
    answer = await http.post("tasks", json={"skill": "test"} | given)
    assert answer.status_code == 200, answer.text[:500]
    message = (await worker.lease_one())["message"]
    assert (message["parts"], message["metadata"]["m"]) == ([{"text": given["input"]}], given["metadata"]["m"])
    given["metadata"]["m"] += "mmm"
    answer = await http.post("tasks", json={"skill": "test"} | given)
    assert (answer.status_code, reason(answer)) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("given", [{"a": [1, None]}, [1, "x"], 0, 7.5, False, "", "text", None])
async def test_every_input_is_one_part(http: httpx.AsyncClient, worker: LeaseWorker, given: object) -> None:
    """Text or data; without an input an empty text, which is none on the way back."""
    answer = await http.post("tasks", json={"skill": "test", "input": given})
    assert answer.json()["input"] == (None if given == "" and isinstance(given, str) else given)
    assert type(answer.json()["input"]) is (type(None) if given == "" and isinstance(given, str) else type(given))
    (part,) = (await worker.lease_one())["message"]["parts"]
    assert part == ({"text": given or ""} if given is None or isinstance(given, str) else {"data": given})


async def test_a_skill_that_the_card_does_not_list_is_taken(http: httpx.AsyncClient) -> None:
    answer = await http.post("tasks", json={"skill": "never heard of", "metadata": {"skill": "other"}})
    assert (answer.status_code, answer.json()["skill"]) == (200, "never heard of")


async def test_two_submissions_are_two_tasks_and_a_key_makes_them_one(http: httpx.AsyncClient) -> None:
    body = {"skill": "test", "input": "x"}
    ids = [(await http.post("tasks", json=body)).json()["id"] for _ in range(2)]
    assert ids[0] != ids[1]
    key = {"Idempotency-Key": "order 7"}
    first = await http.post("tasks", json=body, headers=key)
    again = await http.post("tasks", json=body, headers=key)
    assert again.json() == first.json()
    assert "waystation-replayed" not in first.headers
    assert again.headers["waystation-replayed"] == "true"
    other = await http.post("tasks", json=body | {"input": "y"}, headers=key)
    assert (other.status_code, reason(other)) == (409, "IDEMPOTENCY_CONFLICT")


async def test_each_call_needs_its_scope(replicas: Replicas, agent: str, http: httpx.AsyncClient) -> None:
    task_id = (await http.post("tasks", json={"skill": "test"})).json()["id"]
    calls = {
        "tasks:write": ("POST", "tasks"),
        "tasks:read": ("GET", f"tasks/{task_id}"),
        "tasks:cancel": ("POST", f"tasks/{task_id}/cancel"),
    }
    for scope in calls:
        headers = bearer(mint("a", scope=scope))
        for needed, (method, path) in calls.items():
            body = {"skill": "test"} if needed == "tasks:write" else None
            answer = await http.request(method, path, json=body, headers=headers)
            assert answer.status_code == (200 if needed == scope else 403), (scope, path)
    answer = await http.get(f"tasks/{task_id}/stream", headers=bearer(mint("a", scope="tasks:write")))
    assert (answer.status_code, reason(answer)) == (403, "INSUFFICIENT_SCOPE")


async def test_another_agents_task_is_unknown(replicas: Replicas, agent: str, http: httpx.AsyncClient) -> None:
    task_id = (await http.post("tasks", json={"skill": "test"})).json()["id"]
    replicas[0].register_agent(f"{agent}-2")
    other = f"{replicas[0].base_url}/agents/{agent}-2/tasks/{task_id}"
    for method, path in (("GET", ""), ("GET", "/stream"), ("POST", "/cancel")):
        assert (await http.request(method, other + path)).status_code == 404


@pytest.mark.parametrize(("task_id", "expected"), [("x", 404), ("x" * 256, 404), ("x" * 257, 400), ("%00", 404)])
async def test_what_is_no_task_id(http: httpx.AsyncClient, task_id: str, expected: int) -> None:
    for method, path in (("GET", ""), ("GET", "/stream"), ("POST", "/cancel")):
        assert (await http.request(method, f"tasks/{task_id}{path}")).status_code == expected


async def test_an_agent_that_does_not_stream(replicas: Replicas, agent: str, http: httpx.AsyncClient) -> None:
    card = {
        "name": "quiet", "description": "Streams nothing.", "version": "1", "skills": [],
        "capabilities": {"streaming": False}, "defaultInputModes": [], "defaultOutputModes": [],
    }  # fmt: skip
    replicas[0].register_agent(f"{agent}-quiet", card=card)
    base = f"{replicas[0].base_url}/agents/{agent}-quiet"
    task_id = (await http.post(f"{base}/tasks", json={"skill": "x"})).json()["id"]
    answer = await http.get(f"{base}/tasks/{task_id}/stream")
    assert (answer.status_code, reason(answer)) == (400, "UNSUPPORTED_OPERATION")
    assert (await http.get(f"{base}/.well-known/agent.json")).json()["capabilities"]["streaming"] is False


async def test_a_task_of_another_door(replicas: Replicas, agent: str, http: httpx.AsyncClient) -> None:
    """And the other way round: one ledger, whatever the door."""
    a2a = httpx.AsyncClient(
        base_url=replicas[1].base_url, headers=bearer(mint("a")) | {"A2A-Version": "1.0"}, trust_env=False
    )
    async with a2a:
        task_id = (await http.post("tasks", json={"skill": "test", "input": {"a": 1}})).json()["id"]
        (message,) = (await get_task(a2a, agent, task_id))["history"]
        assert (message["role"], message["parts"], message["metadata"]) == (
            "ROLE_USER",
            [{"data": {"a": 1}}],
            {"skill": "test"},
        )
        sent = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}, {"text": "b"}]}
        body = {"message": sent, "configuration": {"returnImmediately": True}}
        task_id = (await a2a.post(f"/agents/{agent}/a2a/message:send", json=body)).json()["task"]["id"]
    task = (await http.get(f"tasks/{task_id}")).json()
    assert (task["skill"], task["input"], task["state"]) == ("", "ab", "submitted")


async def test_a_long_log_is_not_read_whole_for_a_poll(
    replicas: Replicas, agent: str, http: httpx.AsyncClient, worker: LeaseWorker
) -> None:
    """The history is of the first and the last events; the task itself and its stream are whole."""
    task_id = (await http.post("tasks", json={"skill": "test"})).json()["id"]
    lease = await worker.lease_one()
    await worker.write(lease, artifact("first", "x"))
    await worker.write(lease, *(status("WORKING", f"{number}") for number in range(400)))
    await worker.write(lease, artifact("last", "y"), status("COMPLETED"))
    task = (await http.get(f"tasks/{task_id}")).json()
    assert [entry["state"] for entry in task["history"]] == ["submitted", "working", "completed"]
    events = await raw_events(replicas[0], agent, task_id)
    assert [data["message"] for name, data in events if name == "progress"] == [f"{number}" for number in range(400)]
    assert task["artifacts"] == [data["artifact"] for name, data in events if name == "artifact"]
    assert task["updatedAt"] == events[-1][1]["timestamp"]


async def test_an_artifact_in_chunks_is_told_when_it_begins_and_whole(
    replicas: Replicas, agent: str, http: httpx.AsyncClient, worker: LeaseWorker
) -> None:
    """adk-python#6686 for readers who know no appending: never a part that stands for the whole."""
    task_id = (await http.post("tasks", json={"skill": "test"})).json()["id"]
    lease = await worker.lease_one()
    async with legacy_stream(replicas[0], agent, task_id) as stream:
        await stream.head()
        await worker.write(lease, artifact("a", "A:"), artifact("a", "3", append=True))
        await worker.write(lease, artifact("b", "B"), artifact("b", "!", append=True))
        await worker.write(lease, artifact("a", ".", append=True, last=True), status("COMPLETED"))
        events = naive(await stream.rest())
    told = [(data["artifact"]["id"], data["artifact"]["content"]) for name, data in events if name == "artifact"]
    assert told == [("a", "A:"), ("b", "B"), ("a", "A:3."), ("b", "B!")]
    assert events[-1][0] == "state", "all of it comes before the end"
    task = (await http.get(f"tasks/{task_id}")).json()
    assert {one["id"]: one for one in task["artifacts"]} == {
        data["artifact"]["id"]: data["artifact"] for name, data in events if name == "artifact"
    }
