"""Push notification configs at the doors (A2A v1.0 §3.1.7 to §3.1.10): what is kept, shown and refused.

What every door must mean alike stands in scenarios/push.py; the deliveries are tested in tests/integration/webhooks.
"""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import Door, DoorError, Json, say, state
from tests.support.worker import status

BROKER_ENVIRONMENT = {"WAYSTATION_EGRESS_ALLOW_CIDRS": "127.0.0.2/32"}
SCOPES = "tasks:read tasks:write tasks:cancel push:write"
HOOK = "https://127.0.0.2/hook"
CREATE, GET = "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"
LIST, DELETE = "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"
SECRETS = {"token": "t-123", "authentication": {"scheme": "Bearer", "credentials": "c-456"}}
INLINE = "configuration.taskPushNotificationConfig"
FORBIDDEN_URLS = [
    "http://127.0.0.1/x", "https://127.0.0.1/x", "https://169.254.169.254/latest/meta-data", "https://[::1]/",
    "https://[::ffff:10.0.0.1]/x", "https://10.1.2.3/", "https://192.168.1.1/", "https://2130706433/",
    "https://0x7f000001/", "https://localhost/", "https://u:p@127.0.0.2/", "https://127.0.0.2/#x", "ftp://127.0.0.2/",
    "file:///etc/passwd", "127.0.0.2", "https://", f"https://127.0.0.2/{'x' * 2048}", "https://127.0.0.2/ü",
    "https://127.0.0.2/a b", "https://127.0.0.2/\r\nHost: x",
]  # fmt: skip


def a_door(agent: Agent, tenant: str = "a", **options: Any) -> Door:
    return agent.door(tenant, scope=SCOPES, **options)


async def a_task(door: Door) -> str:
    return (await door.send(say("go"), now=True))["id"]


async def refused(door: Door, operation: str, params: Json) -> DoorError:
    with pytest.raises(DoorError) as caught:
        await door.call(operation, params)
    return caught.value


def fields(error: DoorError) -> list[str]:
    """The paths of an error's field violations."""
    body = error.response.json()["error"]
    return [
        violation["field"]
        for detail in body.get("data") or body["details"]
        for violation in detail.get("fieldViolations", ())
    ]


async def config_ids(door: Door, task_id: str) -> list[str]:
    return [config["id"] for config in (await door.call(LIST, {"taskId": task_id}))["configs"]]


async def test_a2a_js_541_a2a_java_1092_two_creates_without_id_two_ids(agent: Agent) -> None:
    door = a_door(agent)
    task_id = await a_task(door)
    made = [await door.call(CREATE, {"taskId": task_id, "url": HOOK}) for _ in range(2)]
    assert len({config["id"] for config in made}) == 2
    assert await config_ids(door, task_id) == sorted(config["id"] for config in made)


async def test_the_same_id_again_replaces(agent: Agent) -> None:
    door = a_door(agent)
    task_id = await a_task(door)
    await door.call(CREATE, {"taskId": task_id, "id": "mine", "url": HOOK} | SECRETS)
    await door.call(CREATE, {"taskId": task_id, "id": "mine", "url": HOOK + "/2"})
    assert await door.call(GET, {"taskId": task_id, "id": "mine"}) == {
        "id": "mine", "taskId": task_id, "url": HOOK + "/2",
    }  # fmt: skip


async def test_secrets_are_echoed_to_who_gave_them_and_never_shown_again(agent: Agent) -> None:
    door = a_door(agent)
    task_id = await a_task(door)
    made = await door.call(CREATE, {"taskId": task_id, "url": HOOK, "tenant": agent.id} | SECRETS)
    assert made == {"id": made["id"], "taskId": task_id, "url": HOOK} | SECRETS
    assert door.last is not None
    shown = {"id": made["id"], "taskId": task_id, "url": HOOK, "authentication": {"scheme": "Bearer"}}
    assert await door.call(GET, {"taskId": task_id, "id": made["id"]}) == shown
    assert "t-123" not in door.last.text
    assert await door.call(LIST, {"taskId": task_id}) == {"configs": [shown], "nextPageToken": ""}
    assert "c-456" not in door.last.text
    assert "t-123" not in str(await door.get(task_id))


async def test_delete_is_idempotent(agent: Agent) -> None:
    door = a_door(agent)
    task_id = await a_task(door)
    made = await door.call(CREATE, {"taskId": task_id, "url": HOOK})
    for _ in range(2):
        assert await door.call(DELETE, {"taskId": task_id, "id": made["id"]}) == {}
    assert await config_ids(door, task_id) == []
    assert (await refused(door, GET, {"taskId": task_id, "id": made["id"]})).reason == "TASK_NOT_FOUND"


async def test_pages_follow_the_ids_and_their_tokens_are_of_one_list(agent: Agent) -> None:
    door = a_door(agent)
    task_id, other = await a_task(door), await a_task(door)
    names = [f"c{number}" for number in range(5)]
    for name in reversed(names):
        await door.call(CREATE, {"taskId": task_id, "id": name, "url": HOOK})
    found: list[str] = []
    token = ""
    while True:
        page = await door.call(LIST, {"taskId": task_id, "pageSize": 2, "pageToken": token})
        found += [config["id"] for config in page["configs"]]
        token = page["nextPageToken"] or token
        if not page["nextPageToken"]:
            break
    assert found == names
    for params in ({"taskId": other, "pageToken": token}, {"taskId": task_id, "pageToken": "garbage"},
                   {"taskId": task_id, "pageSize": 101}, {"taskId": task_id, "pageSize": -1}):  # fmt: skip
        assert (await refused(door, LIST, params)).reason == "INVALID_PARAMS"


@pytest.mark.parametrize("url", FORBIDDEN_URLS)
async def test_a2a_python_1164_a2a_go_373_urls_refused_at_creation_and_inline(agent: Agent, url: str) -> None:
    door = a_door(agent)
    task_id = await a_task(door)
    error = await refused(door, CREATE, {"taskId": task_id, "url": url})
    assert (error.reason, fields(error)) == ("INVALID_PARAMS", ["url"])
    before = (await door.list())["totalSize"]
    inline = {"message": say("go"), "configuration": {"taskPushNotificationConfig": {"url": url}}}
    error = await refused(door, "SendMessage", inline)
    assert (error.reason, fields(error)) == ("INVALID_PARAMS", [f"{INLINE}.url"])
    assert (await door.list())["totalSize"] == before
    assert await config_ids(door, task_id) == []


async def test_a_name_that_does_not_resolve_yet_is_accepted(agent: Agent) -> None:
    door = a_door(agent)
    made = await door.call(CREATE, {"taskId": await a_task(door), "url": "https://not-there-yet.invalid/hook"})
    assert made["url"] == "https://not-there-yet.invalid/hook"


@pytest.mark.parametrize(
    ("field", "config"),
    [
        ("authentication.credentials", {"authentication": {"scheme": "Bearer", "credentials": "x\r\nX-Evil: 1"}}),
        ("authentication.credentials", {"authentication": {"scheme": "Bearer", "credentials": "x\ny"}}),
        ("authentication.credentials", {"authentication": {"scheme": "Bearer", "credentials": "ü"}}),
        ("authentication.credentials", {"authentication": {"scheme": "Bearer", "credentials": "x" * 4097}}),
        ("authentication.scheme", {"authentication": {"scheme": "Bearer\r\nX-Evil:", "credentials": "x"}}),
        ("authentication.scheme", {"authentication": {"scheme": "Bearer x", "credentials": "x"}}),
        ("authentication.scheme", {"authentication": {"scheme": "", "credentials": "x"}}),
        ("token", {"token": "x\r\nX-Evil: 1"}),
        ("token", {"token": "tab\there"}),
        ("token", {"token": "\x7f"}),
        ("token", {"token": " x"}),
        ("token", {"token": "x" * 4097}),
        ("id", {"id": "a\r\nb"}),
        ("id", {"id": "a/b"}),
        ("id", {"id": "ü"}),
        ("id", {"id": "x" * 257}),
        ("url", {"url": ""}),
    ],
)
async def test_a2a_java_1043_what_cannot_stand_in_a_header_is_refused(agent: Agent, field: str, config: Json) -> None:
    door = a_door(agent)
    task_id = await a_task(door)
    error = await refused(door, CREATE, {"taskId": task_id, "url": HOOK} | config)
    assert (error.reason, fields(error)) == ("INVALID_PARAMS", [field])
    inline = {"message": say("go"), "configuration": {"taskPushNotificationConfig": {"url": HOOK} | config}}
    error = await refused(door, "SendMessage", inline)
    assert (error.reason, fields(error)) == ("INVALID_PARAMS", [f"{INLINE}.{field}"])
    assert (await door.list())["totalSize"] == 1, "nothing was stored"
    assert await config_ids(door, task_id) == []


async def test_a_config_of_no_task_is_refused(agent: Agent) -> None:
    door = a_door(agent)
    assert fields(await refused(door, "SendMessage", {"message": say("x"), "configuration": 5})) == ["configuration"]
    for task_id in (str(uuid4()), "no uuid"):
        for operation, more in ((CREATE, {"url": HOOK}), (GET, {"id": "x"}), (LIST, {}), (DELETE, {"id": "x"})):
            error = await refused(door, operation, {"taskId": task_id} | more)
            assert error.reason == "TASK_NOT_FOUND"


async def test_configs_of_other_tenants_and_other_agents_are_not_found(agent: Agent) -> None:
    agent.register(visibility="shared", sharedWith=["b"])
    elsewhere = Agent(agent.broker, agent.door_name)
    elsewhere.register()
    door = a_door(agent)
    task_id = await a_task(door)
    await door.call(CREATE, {"taskId": task_id, "id": "mine", "url": HOOK})
    async with elsewhere.exits:
        for stranger in (a_door(agent, "b"), a_door(elsewhere)):
            await a_task(stranger)
            for operation, more in (
                (CREATE, {"url": HOOK}),
                (GET, {"id": "mine"}),
                (LIST, {}),
                (DELETE, {"id": "mine"}),
            ):
                error = await refused(stranger, operation, {"taskId": task_id} | more)
                assert error.reason == "TASK_NOT_FOUND"
                unknown = await refused(stranger, operation, {"taskId": str(uuid4())} | more)
                assert str(unknown) == str(error), "told apart by nothing"
    assert await config_ids(door, task_id) == ["mine"]


async def test_subjects_of_one_tenant_see_each_others_configs(agent: Agent) -> None:
    door, colleague = a_door(agent), a_door(agent, subject="colleague")
    task_id = await a_task(door)
    await door.call(CREATE, {"taskId": task_id, "id": "mine", "url": HOOK})
    assert await config_ids(colleague, task_id) == ["mine"]
    await colleague.call(DELETE, {"taskId": task_id, "id": "mine"})
    assert await config_ids(door, task_id) == []


async def test_an_inline_config_is_made_with_the_message_and_not_by_its_duplicate(agent: Agent) -> None:
    door = a_door(agent)
    message = say("go")
    task = await door.send(message, now=True, configuration={"taskPushNotificationConfig": {"url": HOOK} | SECRETS})
    assert "c-456" not in str(task)
    (made,) = await config_ids(door, task["id"])
    again = await door.send(message, now=True, configuration={"taskPushNotificationConfig": {"url": HOOK}})
    assert again["id"] == task["id"]
    assert await config_ids(door, task["id"]) == [made]


async def test_a_follow_up_brings_a_config_or_replaces_one(agent: Agent) -> None:
    door = a_door(agent)
    task_id = await a_task(door)
    for url in (HOOK, HOOK + "/2"):
        inline = {"taskPushNotificationConfig": {"id": "mine", "url": url}}
        await door.send(say("more", taskId=task_id), now=True, configuration=inline)
        (config,) = (await door.call(LIST, {"taskId": task_id}))["configs"]
        assert config == {"id": "mine", "taskId": task_id, "url": url}


async def test_a_stream_brings_a_config_too(agent: Agent) -> None:
    door = a_door(agent)
    params = {"message": say("go"), "configuration": {"taskPushNotificationConfig": {"id": "mine", "url": HOOK}}}
    async with door.open("SendStreamingMessage", params) as stream:
        first = await stream.next()
    assert first is not None
    assert await config_ids(door, first["task"]["id"]) == ["mine"]


async def test_a_task_has_at_most_32_configs(agent: Agent) -> None:
    door = a_door(agent)
    task_id = await a_task(door)
    for number in range(32):
        await door.call(CREATE, {"taskId": task_id, "id": f"c{number}", "url": HOOK})
    assert (await refused(door, CREATE, {"taskId": task_id, "url": HOOK})).reason == "INVALID_PARAMS"
    inline = {"taskPushNotificationConfig": {"url": HOOK}}
    more = {"message": say("more", taskId=task_id), "configuration": inline}
    assert (await refused(door, "SendMessage", more)).reason == "INVALID_PARAMS"
    assert len((await door.get(task_id))["history"]) == 1


async def test_a_config_outlives_its_task(agent: Agent) -> None:
    door = a_door(agent)
    task_id = await a_task(door)
    await door.call(CREATE, {"taskId": task_id, "id": "mine", "url": HOOK})
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    assert state(await door.get(task_id)) == "COMPLETED"
    assert await config_ids(door, task_id) == ["mine"]
    await door.call(CREATE, {"taskId": task_id, "id": "late", "url": HOOK})
    await door.call(DELETE, {"taskId": task_id, "id": "mine"})
    assert await config_ids(door, task_id) == ["late"]


async def test_configs_of_old_tasks_stay_when_the_agent_is_unshared(agent: Agent) -> None:
    agent.register(visibility="shared", sharedWith=["b"])
    guest = a_door(agent, "b")
    task_id = await a_task(guest)
    agent.register()

    async def send_until_refused() -> None:
        while True:  # the change shows within a second
            await guest.send(say("more"), now=True)

    with pytest.raises(DoorError, match=r"^NOT_FOUND"):
        await asyncio.wait_for(send_until_refused(), 5)
    await guest.call(CREATE, {"taskId": task_id, "id": "mine", "url": HOOK})
    assert await config_ids(guest, task_id) == ["mine"]
    assert await guest.call(DELETE, {"taskId": task_id, "id": "mine"}) == {}


@pytest.mark.parametrize(
    ("operation", "scope"), [(CREATE, "tasks:read"), (DELETE, "tasks:read"), (GET, "push:write"), (LIST, "push:write")]
)
async def test_each_operation_needs_its_scope(agent: Agent, operation: str, scope: str) -> None:
    task_id = await a_task(a_door(agent))
    error = await refused(agent.door(scope=scope), operation, {"taskId": task_id, "id": "x", "url": HOOK})
    assert error.reason == "INSUFFICIENT_SCOPE"


async def test_a_config_with_a_message_needs_the_scope_of_one_that_is_created(agent: Agent) -> None:
    """Else whoever may send could have a task's events sent anywhere."""
    configuration = {"returnImmediately": True, "taskPushNotificationConfig": {"url": HOOK}}
    inline = {"message": say("go"), "configuration": configuration}
    error = await refused(agent.door(scope="tasks:read tasks:write"), "SendMessage", inline)
    assert (error.reason, error.metadata["scope"]) == ("INSUFFICIENT_SCOPE", "push:write")
    assert (await a_door(agent).call("ListTasks", {}))["tasks"] == [], "nothing was stored"
