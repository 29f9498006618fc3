"""``/v1/agents`` (native-api.md, Agents) over a real socket."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.integration.native.conftest import ADMIN, client
from tests.support.broker import BrokerProcess
from tests.support.calls import get_task, native_events, reason, send, violations
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, status

CARD: dict[str, Any] = {
    "name": "Test",
    "description": "An agent of a test.",
    "version": "1.0.0",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "A skill.", "tags": ["t"]}],
}
DEFAULTS: dict[str, Any] = {
    "mode": "pull",
    "cardVisibility": "token",
    "visibility": "private",
    "sharedWith": [],
    "reply": "task",
    "idempotency": "message_id",
    "onBusy": "enqueue",
    "leaseSeconds": 30,
    "cancelGraceSeconds": 3,
    "retry": {"maxAttempts": 3, "backoffSeconds": 2, "maxBackoffSeconds": 300},
    "allowUnresolvedEffects": False,
}


@pytest.fixture
def name() -> str:
    return f"agent-{uuid4().hex[:12]}"


async def put(
    admin: httpx.AsyncClient, name: str, headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    return await admin.put(f"/v1/agents/{name}", json={"card": CARD} | fields, headers=headers)


async def test_put_fills_in_all_defaults_and_get_shows_the_same(admin: httpx.AsyncClient, name: str) -> None:
    made = await put(admin, name, unknownField=1)
    assert made.status_code == 200
    body = made.json()
    assert body["agent"] == name
    assert body["card"] == CARD
    assert {key: body[key] for key in DEFAULTS} == DEFAULTS
    assert "unknownField" not in body
    read = await admin.get(f"/v1/agents/{name}")
    assert read.json() == body
    assert read.headers["etag"] == made.headers["etag"]


async def test_put_replaces_as_a_whole(admin: httpx.AsyncClient, name: str) -> None:
    await put(admin, name, leaseSeconds=5, deadlineSeconds=60.5)
    changed = (await put(admin, name, queueTimeoutSeconds=9, idempotency="key_only", onBusy="reject")).json()
    assert changed["leaseSeconds"] == 30
    assert "deadlineSeconds" not in changed
    assert (changed["queueTimeoutSeconds"], changed["idempotency"], changed["onBusy"]) == (9, "key_only", "reject")


async def test_a_shared_agents_card_is_public_by_default(admin: httpx.AsyncClient, name: str) -> None:
    assert (await put(admin, name, visibility="shared", sharedWith=["b"])).json()["cardVisibility"] == "public"
    body = (await put(admin, name, visibility="shared", sharedWith=["b"], cardVisibility="token")).json()
    assert body["cardVisibility"] == "token"


async def test_etags_guard_a_put(admin: httpx.AsyncClient, name: str) -> None:
    absent = await put(admin, name, {"If-Match": '"1"'})
    assert (absent.status_code, reason(absent)) == (412, "PRECONDITION_FAILED")
    assert (await put(admin, name, {"If-Match": "*"})).status_code == 412
    first = await put(admin, name, {"If-None-Match": "*"})
    assert first.status_code == 200
    assert (await put(admin, name, {"If-None-Match": "*"})).status_code == 412
    tag = first.headers["etag"]
    second = await put(admin, name, {"If-Match": f'"0", {tag}'}, leaseSeconds=7)
    assert second.status_code == 200
    assert second.headers["etag"] != tag
    stale = await put(admin, name, {"If-Match": tag}, leaseSeconds=8)
    assert stale.status_code == 412
    assert (await put(admin, name, {"If-Match": f"W/{second.headers['etag']}"})).status_code == 412, (
        "weak never matches"
    )
    assert (await put(admin, name, {"If-Match": "nonsense"})).status_code == 412
    assert (await admin.get(f"/v1/agents/{name}")).json()["leaseSeconds"] == 7


async def test_get_with_a_known_etag_is_304(admin: httpx.AsyncClient, name: str) -> None:
    tag = (await put(admin, name)).headers["etag"]
    answer = await admin.get(f"/v1/agents/{name}", headers={"If-None-Match": f'"x", W/{tag}'})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert (await admin.get(f"/v1/agents/{name}", headers={"If-None-Match": '"x"'})).status_code == 200


@pytest.mark.parametrize("agent_id", ["v1", "tasks", "extendedagentcard", "card", "rpc", "a2a", "default"])
async def test_reserved_ids(admin: httpx.AsyncClient, agent_id: str) -> None:
    answer = await put(admin, agent_id)
    assert (answer.status_code, violations(answer)) == (400, {"agent": "is reserved"})


@pytest.mark.parametrize("agent_id", ["-x", "X", "a_b", "a" * 64, "a%00b", "%C3%A4", "a.b"])
async def test_bad_ids(
    shared_broker: BrokerProcess, admin: httpx.AsyncClient, user: httpx.AsyncClient, agent_id: str
) -> None:
    answer = await put(admin, agent_id)
    if "%00" in agent_id:
        assert answer.status_code == 404
    else:
        assert (answer.status_code, set(violations(answer))) == (400, {"agent"})
    assert (await admin.get(f"/v1/agents/{agent_id}")).status_code == 404
    assert (await admin.delete(f"/v1/agents/{agent_id}")).status_code == 404
    async with LeaseWorker(shared_broker.base_url, agent_id) as worker:
        leases = await worker.http.post(f"/v1/agents/{agent_id}/leases", json={"workerId": "w"})
        assert leases.status_code == 404
    assert (await user.get(f"/agents/{agent_id}/a2a/tasks")).status_code == 404


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"mode": "push"}, "mode"),
        ({"remote": {"url": "https://x"}}, "remote"),
        ({"onBusy": "interrupt"}, "onBusy"),
        ({"allowUnresolvedEffects": True}, "allowUnresolvedEffects"),
        ({"retentionDays": 7}, "retentionDays"),
    ],
)
async def test_what_is_not_built_is_refused_never_ignored(
    admin: httpx.AsyncClient, name: str, fields: dict[str, Any], field: str
) -> None:
    answer = await put(admin, name, **fields)
    assert (answer.status_code, reason(answer)) == (400, "NOT_SUPPORTED")
    assert set(violations(answer)) == {field}
    assert (await admin.get(f"/v1/agents/{name}")).status_code == 404, "nothing was stored"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"card": None}, "card"),
        ({"card": {"name": "x"}}, "card.description"),
        ({"mode": "shove"}, "mode"),
        ({"visibility": "public"}, "visibility"),
        ({"visibility": "shared"}, ""),
        ({"visibility": "shared", "sharedWith": ["Not A Tenant"]}, "sharedWith[0]"),
        ({"leaseSeconds": 0.5}, "leaseSeconds"),
        ({"leaseSeconds": "30"}, "leaseSeconds"),
        ({"leaseSeconds": True}, "leaseSeconds"),
        ({"cancelGraceSeconds": -1}, "cancelGraceSeconds"),
        ({"retry": {"maxAttempts": 0}}, "retry.maxAttempts"),
        ({"retry": {"backoffSeconds": -1}}, "retry.backoffSeconds"),
        ({"retry": []}, "retry"),
        ({"deadlineSeconds": 0}, "deadlineSeconds"),
        ({"maxConcurrency": 0}, "maxConcurrency"),
        ({"maxConcurrency": 2**31}, "maxConcurrency"),
        ({"maxConcurrencyPerTenant": 1.5}, "maxConcurrencyPerTenant"),
        ({"idempotency": "none"}, "idempotency"),
    ],
)
async def test_bad_settings(admin: httpx.AsyncClient, name: str, fields: dict[str, Any], field: str) -> None:
    answer = await put(admin, name, **fields)
    assert (answer.status_code, reason(answer)) == (400, "INVALID_ARGUMENT")
    assert field in violations(answer)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b'"x"', b"{", b'{"card":1,"card":2}', b'{"card":"\\u0000"}', b"\xff"]
)
async def test_bad_bodies(admin: httpx.AsyncClient, name: str, body: bytes) -> None:
    answer = await admin.put(f"/v1/agents/{name}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text


async def test_an_id_is_unique_in_the_deployment(
    admin: httpx.AsyncClient, other_admin: httpx.AsyncClient, name: str
) -> None:
    await put(admin, name)
    taken = await put(other_admin, name)
    assert (taken.status_code, reason(taken)) == (409, "AGENT_ID_TAKEN")
    assert (await other_admin.get(f"/v1/agents/{name}")).status_code == 404
    assert (await other_admin.delete(f"/v1/agents/{name}")).status_code == 404
    await admin.delete(f"/v1/agents/{name}")
    taken = await put(other_admin, name)
    assert (taken.status_code, reason(taken)) == (409, "AGENT_ID_TAKEN"), "a tombstone keeps its id"
    again = await put(admin, name)
    assert again.status_code == 200


async def test_a_foreign_agent_is_byte_equal_to_none(
    admin: httpx.AsyncClient, other_admin: httpx.AsyncClient, name: str
) -> None:
    await put(admin, name)
    foreign = await other_admin.get(f"/v1/agents/{name}")
    unknown = await other_admin.get(f"/v1/agents/{uuid4().hex}")
    assert foreign.content == unknown.content
    assert {key for key in foreign.headers if key != "date"} == {key for key in unknown.headers if key != "date"}


async def test_a_shared_agent_is_seen_but_not_its_other_friends(
    admin: httpx.AsyncClient, other_admin: httpx.AsyncClient, name: str
) -> None:
    await put(admin, name, visibility="shared", sharedWith=["b", "c"])
    seen = await other_admin.get(f"/v1/agents/{name}")
    assert seen.status_code == 200
    assert seen.json()["sharedWith"] == ["b"]
    assert "tenant" not in seen.json()
    assert (await put(other_admin, name)).status_code == 409
    await put(admin, name, visibility="private", sharedWith=["b"])
    assert (await other_admin.get(f"/v1/agents/{name}")).status_code == 404


async def test_list_pages_through_what_the_caller_may_see(shared_broker: BrokerProcess, name: str) -> None:
    token = mint(f"t{uuid4().hex[:8]}", "admin", ADMIN)
    async with client(shared_broker, token) as lister:
        names = sorted(f"{name}-{number}" for number in range(5))
        for each in names:
            assert (await put(lister, each)).status_code == 200
        await lister.delete(f"/v1/agents/{names[2]}")
        seen: list[str] = []
        page_token = ""
        while True:
            query = {"pageSize": 2, "pageToken": page_token}
            page = (await lister.get("/v1/agents", params=query)).json()
            assert len(page["agents"]) <= 2
            seen += [row["agent"] for row in page["agents"] if row["agent"].startswith(name)]
            page_token = page["nextPageToken"]
            if not page_token:
                break
        assert seen == [each for each in names if each != names[2]]


@pytest.mark.parametrize("query", ["pageSize=0", "pageSize=101", "pageSize=x", "pageToken=x", "pageSize=1&pageSize=2"])
async def test_bad_lists(admin: httpx.AsyncClient, query: str) -> None:
    answer = await admin.get(f"/v1/agents?{query}")
    assert answer.status_code == 400, answer.text


async def test_a_foreign_page_token_is_garbage(
    admin: httpx.AsyncClient, other_admin: httpx.AsyncClient, name: str
) -> None:
    for number in range(2):
        await put(admin, f"{name}-{number}")
    token = (await admin.get("/v1/agents", params={"pageSize": 1})).json()["nextPageToken"]
    assert token
    answer = await other_admin.get("/v1/agents", params={"pageToken": token})
    assert (answer.status_code, set(violations(answer))) == (400, {"pageToken"})


async def test_scopes(shared_broker: BrokerProcess, admin: httpx.AsyncClient, name: str) -> None:
    await put(admin, name)
    async with client(shared_broker, mint("a", "u", "agents:read")) as reader:
        assert (await reader.get(f"/v1/agents/{name}")).status_code == 200
        assert (await put(reader, name)).status_code == 403
        assert (await reader.delete(f"/v1/agents/{name}")).status_code == 403
    async with client(shared_broker, mint("a", "u", "tasks:read admin")) as stranger:
        refused = await stranger.get(f"/v1/agents/{name}")
        assert (refused.status_code, reason(refused)) == (403, "INSUFFICIENT_SCOPE")
    async with httpx.AsyncClient(base_url=shared_broker.base_url, trust_env=False) as nobody:
        assert (await nobody.get(f"/v1/agents/{name}")).status_code == 401


async def test_delete_is_refused_while_tasks_live_and_force_fails_them(
    shared_broker: BrokerProcess, admin: httpx.AsyncClient, user: httpx.AsyncClient, agent: str
) -> None:
    queued, paused, done = [await send(user, agent) for _ in range(3)]
    async with LeaseWorker(shared_broker.base_url, agent) as worker:
        leases = {lease["taskId"]: lease for lease in await worker.lease(3)}
        await worker.write(leases[done["id"]], status("COMPLETED", "ok"))
        await worker.write(leases[paused["id"]], status("INPUT_REQUIRED", "what?"))
        busy = await admin.delete(f"/v1/agents/{agent}")
        assert (busy.status_code, reason(busy)) == (409, "AGENT_BUSY")
        assert (await admin.get(f"/v1/agents/{agent}")).status_code == 200
        bad = await admin.delete(f"/v1/agents/{agent}", params={"force": "yes"})
        assert bad.status_code == 400

        gone = await admin.delete(f"/v1/agents/{agent}", params={"force": "true"})
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await admin.get(f"/v1/agents/{agent}")).status_code == 404
        assert (await admin.delete(f"/v1/agents/{agent}")).status_code == 404
        assert agent not in [row["agent"] for row in (await admin.get("/v1/agents")).json()["agents"]]
        refused = await user.post(f"/agents/{agent}/a2a/message:send", json={"message": {}})
        assert refused.status_code == 404

        for task, state in ((queued, "FAILED"), (paused, "FAILED"), (done, "COMPLETED")):
            last = (await native_events(user, task["id"]))[-1]
            assert last["statusUpdate"]["status"]["state"] == f"TASK_STATE_{state}"
        failed = (await native_events(user, queued["id"]))[-1]["statusUpdate"]
        assert failed["metadata"]["https://waystation.dev/ext/resume/v1"]["reason"] == "AGENT_DELETED"

        late = await worker.events(leases[queued["id"]], status("COMPLETED"))
        assert (late.status_code, reason(late)) == (409, "TASK_TERMINAL"), "a tombstone still tells the truth"
        answer = await worker.http.post(f"/v1/agents/{agent}/leases", json={"workerId": "w", "waitSeconds": 0})
        assert answer.status_code == 404


async def test_delete_counts_the_tasks_of_all_tenants(
    shared_broker: BrokerProcess, admin: httpx.AsyncClient, agent: str
) -> None:
    async with client(shared_broker, mint("b")) as guest:
        task = await send(guest, agent)
        assert (await admin.delete(f"/v1/agents/{agent}")).status_code == 409
        assert (await admin.delete(f"/v1/agents/{agent}", params={"force": "true"})).status_code == 204
        last = (await native_events(guest, task["id"]))[-1]
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"


async def test_live_tasks_keep_the_settings_they_were_submitted_under(
    admin: httpx.AsyncClient, user: httpx.AsyncClient, shared_broker: BrokerProcess, name: str
) -> None:
    await put(admin, name, retry={"maxAttempts": 1})
    task = await send(user, name)
    await put(admin, name, retry={"maxAttempts": 5})
    async with LeaseWorker(shared_broker.base_url, name) as worker:
        lease = await worker.lease_one()
        assert (await worker.retry(lease, "no luck")).json()["state"] == "TASK_STATE_FAILED"
    assert (await get_task(user, name, task["id"]))["status"]["state"] == "TASK_STATE_FAILED"


async def test_the_greatest_number_of_leases_is_the_agents_of_now(
    shared_broker: BrokerProcess, admin: httpx.AsyncClient, user: httpx.AsyncClient, name: str
) -> None:
    made = (await put(admin, name, maxConcurrency=1, maxConcurrencyPerTenant=7)).json()
    assert (made["maxConcurrency"], made["maxConcurrencyPerTenant"]) == (1, 7)
    for _ in range(4):
        await send(user, name)
    async with LeaseWorker(shared_broker.base_url, name) as worker:
        (lease,) = await worker.lease(10)
        assert await worker.lease(10, wait=0) == []
        waiting = asyncio.create_task(worker.lease(10, wait=20))
        await worker.write(lease, status("COMPLETED"))
        assert len(await asyncio.wait_for(waiting, 10)) == 1
        assert "maxConcurrency" not in (await put(admin, name)).json()
        assert len(await worker.lease(10, wait=10)) == 2, "a change shows within a second"


async def test_no_etag_comes_again_after_a_deletion(admin: httpx.AsyncClient, name: str) -> None:
    first = (await put(admin, name)).headers["etag"]
    await admin.delete(f"/v1/agents/{name}")
    assert (await put(admin, name)).headers["etag"] != first


async def test_other_methods_are_405(admin: httpx.AsyncClient, name: str) -> None:
    answer = await admin.post(f"/v1/agents/{name}", json={})
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) >= {"GET", "PUT", "DELETE"}


def test_a_token_in_the_query_is_refused(shared_broker: BrokerProcess) -> None:
    token = mint("a", "admin", ADMIN)
    answer = httpx.get(f"{shared_broker.base_url}/v1/agents?access_token={token}", trust_env=False)
    assert answer.status_code == 401
    answer = httpx.get(f"{shared_broker.base_url}/v1/agents?access_token=x", headers=bearer(token), trust_env=False)
    assert answer.status_code == 400
