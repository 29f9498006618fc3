"""Webhooks as clients and their organisation meet them: configs over A2A, deliveries, secrets and the test call under
``/v1``, on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from tests.support.broker import BrokerProcess, card
from tests.support.calls import Json, native_events, reason, user_message, violations
from tests.support.ledger import until
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.receiver import Receiver, Trouble
from tests.support.tokens import CLIENT_SCOPE, bearer, mint
from tests.support.worker import LeaseWorker, artifact, status

HIDDEN = {"message.user", "turn.started"}
NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def module_broker(
    postgres_server: SharedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    name = run_sync(postgres_server.create_database(template_database))
    log: Path = tmp_path_factory.mktemp("broker") / "broker.log"
    broker = BrokerProcess(postgres_server.dsn(name), log, WAYSTATION_EGRESS_ALLOW_CIDRS="127.0.0.0/8")
    broker.start()
    yield broker
    broker.close()
    print(broker.output())
    run_sync(postgres_server.drop_database(name))


@pytest.fixture
def tenant() -> str:
    """One of this test's own: its deliveries and secrets are nobody else's."""
    return f"t-{uuid4().hex[:8]}"


@pytest.fixture
def agent(module_broker: BrokerProcess) -> str:
    name = f"agent-{uuid4().hex[:12]}"
    settings: Json = {"visibility": "shared", "sharedWith": ["*"], "card": card(name, pushNotifications=True)}
    module_broker.register_agent(name, **settings)
    return name


@pytest_asyncio.fixture
async def worker(module_broker: BrokerProcess, agent: str) -> AsyncIterator[LeaseWorker]:
    async with LeaseWorker(module_broker.base_url, agent) as one:
        yield one


@pytest_asyncio.fixture
async def user(module_broker: BrokerProcess, tenant: str) -> AsyncIterator[httpx.AsyncClient]:
    async with client(module_broker, tenant) as one:
        yield one


def client(broker: BrokerProcess, tenant: str, scope: str = f"{CLIENT_SCOPE} push:write") -> httpx.AsyncClient:
    headers = bearer(mint(tenant, scope=scope)) | {"A2A-Version": "1.0"}
    return httpx.AsyncClient(base_url=broker.base_url, headers=headers, timeout=60, trust_env=False)


async def send(user: httpx.AsyncClient, agent: str, url: str, **config: Any) -> httpx.Response:
    """A message with an inline config."""
    configuration = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url} | config}
    body = {"message": user_message(), "configuration": configuration}
    return await user.post(f"/agents/{agent}/a2a/message:send", json=body)


async def hooked(user: httpx.AsyncClient, agent: str, url: str, **config: Any) -> str:
    """The id of a task with an inline config."""
    answer = await send(user, agent, url, **config)
    assert answer.status_code == 200, answer.text
    return answer.json()["task"]["id"]


async def listed(user: httpx.AsyncClient, **query: str) -> list[Json]:
    answer = await user.get("/v1/deliveries", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["deliveries"]


async def test_an_inline_config_hears_of_everything_after_the_submit(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, hooks: Receiver
) -> None:
    url = hooks.url("/hook?key=secret")
    auth = {"scheme": "Bearer", "credentials": "x"}
    task = await hooked(user, agent, url, id="mine", token="t", authentication=auth)
    lease = await worker.lease_one()
    await worker.write(lease, artifact("a", "one"))
    await worker.write(lease, artifact("a", " two", append=True), status("COMPLETED", "done"))
    shown = [event for event in await native_events(user, task) if event["kind"] not in HIDDEN and event["seq"] > 1]
    await hooks.until(lambda: len(hooks.requests) == len(shown))
    (secret,) = (await user.get("/v1/webhooks/secrets")).json()["secrets"]
    for one, event in zip(hooks.requests, shown, strict=True):
        assert one.webhook_id == f"{task}:{event['seq']}:mine"
        assert one.json.items() <= event.items()
        assert one.headers["authorization"] == "Bearer x"
        assert one.headers["x-a2a-notification-token"] == "t"
        assert one.is_signed_with(secret["secret"])

    async def all_delivered() -> list[Json]:
        rows = await listed(user, taskId=task, state="delivered")
        return rows if len(rows) == len(shown) else []

    rows = await until(all_delivered)
    assert {row["destination"] for row in rows} == {
        hooks.url("")[:-1] if hooks.url("").endswith("/") else hooks.url("")
    }
    for row, event in zip(reversed(rows), shown, strict=True):
        assert row["deliveryId"] == f"{task}:{event['seq']}:mine"
        assert (row["taskId"], row["configId"], row["seq"]) == (task, "mine", event["seq"])
        assert (row["state"], row["attempts"], row["lastStatus"], row["lastError"]) == ("delivered", 1, 200, None)
        assert row["dueAt"] is None
        assert row["createdAt"] <= row["deliveredAt"]
        assert "secret" not in str(row), "the query of the URL is not shown"


async def test_a2a_python_1164_private_addresses_are_refused_at_creation_inline_too(
    user: httpx.AsyncClient, agent: str
) -> None:
    for url in ("http://169.254.169.254/", "https://[::ffff:10.0.0.1]/x", "https://10.1.2.3/", "https://0x7f.1/"):
        answer = await send(user, agent, url)
        assert answer.status_code == 400, answer.text
        assert any("url" in field for field in violations(answer)), answer.text
    assert (await user.get("/v1/tasks")).json()["tasks"] == [], "nothing was stored"
    assert await listed(user) == []


async def test_deliveries_are_listed_in_pages_and_by_state(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, hooks: Receiver
) -> None:
    hooks.always("/gone", 410)
    first = await hooked(user, agent, hooks.url("/gone"))
    second = await hooked(user, agent, hooks.url("/fine"))
    for lease in await worker.lease(max=2):
        await worker.write(lease, status("COMPLETED"))

    async def all_ended() -> bool:
        return not await listed(user, state="pending") and len(await listed(user)) == 4

    await until(all_ended)
    assert {row["taskId"] for row in await listed(user, state="dead")} == {first}
    assert {row["lastStatus"] for row in await listed(user, state="dead")} == {410}
    assert {row["taskId"] for row in await listed(user, state="delivered")} == {second}
    found, token = [], ""
    for _ in range(4):
        page = (await user.get("/v1/deliveries", params={"pageSize": "1", "pageToken": token})).json()
        found += page["deliveries"]
        token = page["nextPageToken"]
    assert token == ""
    assert found == await listed(user)
    assert [row["taskId"] for row in found] == [second, second, first, first], "the newest task first"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"state": "lost"}, "state"),
        ({"pageSize": "0"}, "pageSize"),
        ({"pageSize": "101"}, "pageSize"),
        ({"pageToken": "nonsense"}, "pageToken"),
    ],
)
async def test_a_bad_query_is_named(user: httpx.AsyncClient, query: Json, field: str) -> None:
    answer = await user.get("/v1/deliveries", params=query)
    assert (answer.status_code, list(violations(answer))) == (400, [field])


async def test_a_token_of_another_list_is_garbage(
    user: httpx.AsyncClient, module_broker: BrokerProcess, agent: str, worker: LeaseWorker, hooks: Receiver
) -> None:
    await hooked(user, agent, hooks.url("/x"))
    await worker.write(await worker.lease_one(), status("COMPLETED"))
    await hooks.until(lambda: len(hooks.requests) == 2)
    token = (await user.get("/v1/deliveries", params={"pageSize": "1"})).json()["nextPageToken"]
    assert token
    async with client(module_broker, "another") as other:
        for who, query in ((other, {}), (user, {"state": "dead"}), (user, {"taskId": NOBODY})):
            answer = await who.get("/v1/deliveries", params={"pageToken": token} | query)
            assert (answer.status_code, list(violations(answer))) == (400, ["pageToken"])


async def test_a_dead_delivery_is_sent_once_more_when_asked_for(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, hooks: Receiver
) -> None:
    hooks.script("/x", 410)
    await hooked(user, agent, hooks.url("/x"))
    await worker.write(await worker.lease_one(), status("COMPLETED"))
    await hooks.until(lambda: len(hooks.requests) == 2)

    async def dead() -> list[Json]:
        return await listed(user, state="dead")

    (row,) = await until(dead)
    answer = await user.post(f"/v1/deliveries/{row['deliveryId']}:redeliver")
    assert answer.status_code == 200, answer.text
    assert answer.json()["deliveryId"] == row["deliveryId"]
    assert answer.json()["state"] in ("pending", "delivered"), "it may have been sent already"
    await hooks.until(lambda: len(hooks.requests) == 3)
    first, _, again = hooks.requests
    assert (again.webhook_id, again.body) == (first.webhook_id, first.body)

    async def delivered() -> bool:
        return len(await listed(user, state="delivered")) == 2

    await until(delivered)


async def test_a_pending_delivery_cannot_be_redelivered(
    user: httpx.AsyncClient, agent: str, worker: LeaseWorker, hooks: Receiver
) -> None:
    hooks.always("/x", Trouble.HANG)
    await hooked(user, agent, hooks.url("/x"))
    await worker.write(await worker.lease_one(), status("COMPLETED"))
    await hooks.until(lambda: hooks.requests)
    (row, _) = await listed(user)
    answer = await user.post(f"/v1/deliveries/{row['deliveryId']}:redeliver")
    assert (answer.status_code, reason(answer)) == (409, "CONFLICT")
    hooks.release()


async def test_unknown_foreign_and_malformed_ids_are_one_not_found(
    user: httpx.AsyncClient, module_broker: BrokerProcess, agent: str, worker: LeaseWorker, hooks: Receiver
) -> None:
    task = await hooked(user, agent, hooks.url("/x"), id="c")
    await worker.write(await worker.lease_one(), status("COMPLETED"))
    await hooks.until(lambda: len(hooks.requests) == 2)
    bodies: set[bytes] = set()
    async with client(module_broker, "another") as other:
        for who, path in (
            (other, f"/v1/deliveries/{hooks.requests[0].webhook_id}:redeliver"),
            (user, f"/v1/deliveries/{task}:999:c:redeliver"),
            (user, f"/v1/deliveries/{task}:2:d:redeliver"),
            (user, f"/v1/deliveries/{task}:02:c:redeliver"),
            (user, f"/v1/deliveries/{task.upper()}:2:c:redeliver"),
            (user, f"/v1/deliveries/{'9' * 300}:redeliver"),
            (user, "/v1/deliveries/%00:2:c:redeliver"),
            (user, f"/v1/deliveries/{task}:99999999999999999999:c:redeliver"),
            (other, f"/v1/tasks/{task}/pushNotificationConfigs/c:test"),
            (user, f"/v1/tasks/{task}/pushNotificationConfigs/d:test"),
            (user, f"/v1/tasks/{NOBODY}/pushNotificationConfigs/c:test"),
            (user, "/v1/tasks/nonsense/pushNotificationConfigs/c:test"),
            (user, f"/v1/tasks/{task}/pushNotificationConfigs/%00:test"),
        ):
            answer = await who.post(path)
            assert (answer.status_code, reason(answer)) == (404, "NOT_FOUND"), path
            bodies.add(answer.content)
        assert await listed(other) == []
        assert await listed(other, taskId=task) == []
    assert len(bodies) == 1
    assert len(hooks.requests) == 2


async def test_each_tenant_has_its_own_secret_and_both_sign_after_a_rotation(
    user: httpx.AsyncClient, module_broker: BrokerProcess, agent: str, worker: LeaseWorker, hooks: Receiver
) -> None:
    (old,) = (await user.get("/v1/webhooks/secrets")).json()["secrets"]
    assert old["expiresAt"] is None
    assert (await user.get("/v1/webhooks/secrets")).json()["secrets"] == [old]
    async with client(module_broker, f"t-{uuid4().hex[:8]}") as other:
        (foreign,) = (await other.get("/v1/webhooks/secrets")).json()["secrets"]
    assert foreign["secret"] != old["secret"]
    rotated = (await user.post("/v1/webhooks/secrets:rotate")).json()["secrets"]
    new, kept = rotated
    assert (kept["secretId"], kept["secret"]) == (old["secretId"], old["secret"])
    assert kept["expiresAt"] is not None
    assert new["expiresAt"] is None
    await hooked(user, agent, hooks.url("/x"))
    await worker.write(await worker.lease_one(), status("COMPLETED"))
    await hooks.until(lambda: hooks.requests)
    assert hooks.requests[0].is_signed_with(new["secret"])
    assert hooks.requests[0].is_signed_with(old["secret"])
    assert not hooks.requests[0].is_signed_with(foreign["secret"])


async def test_the_test_call_sends_the_present_status_and_is_no_delivery(
    user: httpx.AsyncClient, agent: str, hooks: Receiver
) -> None:
    task = await hooked(user, agent, hooks.url("/x"), id="c", token="t")
    (secret,) = (await user.get("/v1/webhooks/secrets")).json()["secrets"]
    path = f"/v1/tasks/{task}/pushNotificationConfigs/c:test"
    answer = (await user.post(path)).json()
    assert (answer["delivered"], answer["status"], answer["error"]) == (True, 200, None)
    assert 0 <= answer["durationMs"] < 15_000
    hooks.script("/x", 500)
    answer = (await user.post(path)).json()
    assert (answer["delivered"], answer["status"], answer["error"]) == (False, 500, "Status 500")
    first, second = hooks.requests
    assert first.webhook_id != second.webhook_id
    for one in hooks.requests:
        assert one.headers["x-waystation-test"] == "true"
        assert one.headers["x-a2a-notification-token"] == "t"
        assert one.is_signed_with(secret["secret"])
        update = one.json["statusUpdate"]
        assert update["taskId"] == task
        assert update["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert update["metadata"] == {"https://waystation.dev/ext/resume/v1": {"test": True}}
    assert await listed(user) == []


async def test_test_calls_are_few(user: httpx.AsyncClient, agent: str, hooks: Receiver) -> None:
    task = await hooked(user, agent, hooks.url("/x"), id="c")
    hooks.always("/x", Trouble.HANG)
    path = f"/v1/tasks/{task}/pushNotificationConfigs/c:test"
    waiting = [asyncio.create_task(user.post(path)) for _ in range(2)]
    await hooks.until(lambda: len(hooks.requests) == 2)
    third = await user.post(path)
    assert (third.status_code, reason(third)) == (429, "RESOURCE_EXHAUSTED")
    assert int(third.headers["retry-after"]) >= 1
    hooks.release()
    assert [(await one).json()["delivered"] for one in waiting] == [True, True]
    codes = [(await user.post(path)).status_code for _ in range(10)]
    assert codes == [200] * 8 + [429] * 2


async def test_without_the_scope_nothing(module_broker: BrokerProcess, tenant: str) -> None:
    async with client(module_broker, tenant, CLIENT_SCOPE) as one:
        for method, path in (
            ("GET", "/v1/deliveries"),
            ("GET", "/v1/webhooks/secrets"),
            ("POST", "/v1/webhooks/secrets:rotate"),
            ("POST", "/v1/deliveries/x:redeliver"),
            ("POST", f"/v1/tasks/{NOBODY}/pushNotificationConfigs/c:test"),
        ):
            answer = await one.request(method, path)
            assert (answer.status_code, reason(answer)) == (403, "INSUFFICIENT_SCOPE")
