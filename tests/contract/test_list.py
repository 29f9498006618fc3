"""ListTasks through both doors (A2A v1.0 §3.1.4; a2a-server.md)."""

import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import DoorError, Json, say, state
from tests.support.worker import artifact, status


async def test_an_empty_page_has_all_its_keys(agent: Agent) -> None:
    assert await agent.door().list() == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


async def test_pages_go_from_the_latest_status_to_the_earliest(agent: Agent) -> None:
    door = agent.door()
    ids = [(await door.send(say(str(number)), now=True))["id"] for number in range(5)]
    seen: list[str] = []
    page: Json = {"nextPageToken": ""}
    while True:
        more = {"pageToken": page["nextPageToken"]} if page["nextPageToken"] else {}
        page = await door.list(pageSize=2, **more)
        assert (page["pageSize"], page["totalSize"]) == (2, 5)
        seen += [task["id"] for task in page["tasks"]]
        if not page["nextPageToken"]:
            break
    assert seen == ids[::-1]


async def test_filters(agent: Agent) -> None:
    door = agent.door()
    one = await door.send(say("1", contextId="c1"), now=True)
    two = await door.send(say("2", contextId="c2"), now=True)
    await door.cancel(one["id"])

    async def ids(**filters: object) -> list[str]:
        return [task["id"] for task in (await door.list(**filters))["tasks"]]

    assert await ids(contextId="c2") == [two["id"]]
    assert await ids(status="TASK_STATE_CANCELED") == [one["id"]]
    assert await ids(status="TASK_STATE_WORKING") == []
    assert await ids(status="TASK_STATE_UNSPECIFIED") == [one["id"], two["id"]]
    canceled_at = (await door.get(one["id"]))["status"]["timestamp"]
    assert await ids(statusTimestampAfter=canceled_at) == [one["id"]], "inclusive"


async def test_artifacts_and_history_as_asked(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("1"), now=True)
    await door.send(say("2"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), artifact("x", "y"), status("COMPLETED"))
    plain = (await door.list())["tasks"]
    assert all("artifacts" not in shown for shown in plain)
    assert all(len(shown["history"]) == 1 for shown in plain)
    full = {shown["id"]: shown for shown in (await door.list(includeArtifacts=True, historyLength=0))["tasks"]}
    assert len(full[task["id"]]["artifacts"]) == 1
    assert [shown["artifacts"] for key, shown in full.items() if key != task["id"]] == [[]]
    assert all("history" not in shown for shown in full.values())


@pytest.mark.parametrize(
    "filters",
    [
        {"pageSize": 0},
        {"pageSize": 101},
        {"pageSize": -1},
        {"pageSize": "many"},
        {"status": "bogus"},
        {"pageToken": "garbage"},
        {"historyLength": -1},
        {"statusTimestampAfter": "yesterday"},
        {"contextId": "x" * 257},
    ],
)
async def test_a2a_rs_122_bad_filters_are_invalid(agent: Agent, filters: Json) -> None:
    with pytest.raises(DoorError, match="INVALID_PARAMS"):
        await agent.door().list(**filters)


async def test_a_cursor_serves_its_own_list_only(agent: Agent) -> None:
    agent.register(visibility="shared", sharedWith=["*"])
    door, other = agent.door(), agent.door("b")
    for tenant in (door, other):
        for number in range(2):
            await tenant.send(say(str(number)), now=True)
    token = (await door.list(pageSize=1))["nextPageToken"]
    assert len((await door.list(pageSize=1, pageToken=token))["tasks"]) == 1
    tampered = ("A" if token[0] != "A" else "B") + token[1:]
    answers: list[str] = []
    for caller, filters in (
        (other, {"pageToken": token}),
        (door, {"pageToken": token, "contextId": "c"}),
        (door, {"pageToken": tampered}),
        (door, {"pageToken": "garbage"}),
    ):
        with pytest.raises(DoorError, match="INVALID_PARAMS") as caught:
            await caller.list(pageSize=1, **filters)
        answers.append(str(caught.value))
    assert len(set(answers)) == 1, "a foreign cursor is answered like garbage"


async def test_only_this_agents_and_this_tenants_tasks(agent: Agent) -> None:
    agent.register(visibility="shared", sharedWith=["*"])
    other = Agent(agent.broker, agent.door_name)
    other.register()
    mine = await agent.door().send(say("1"), now=True)
    await agent.door("b").send(say("2"), now=True)
    await agent.door(agent=other.id).send(say("3"), now=True)
    listed = (await agent.door().list())["tasks"]
    assert [(task["id"], state(task)) for task in listed] == [(mine["id"], "SUBMITTED")]


async def test_the_longest_ids_are_leased_and_listed(agent: Agent) -> None:
    """Ids that JSON prints six times as long still fit into a leaseId and a pageToken."""
    door, context_id = agent.door(), "\x01" * 256
    for _ in range(2):
        await door.send(say("hi", contextId=context_id), now=True)
    async with agent.worker() as worker:
        worker.worker_id = '"' * 128
        lease = await worker.lease_one()
        assert lease["contextId"] == context_id
        await worker.write(lease, status("COMPLETED"))
    page = await door.list(contextId=context_id, pageSize=1)
    rest = await door.list(contextId=context_id, pageSize=1, pageToken=page["nextPageToken"])
    assert len(page["tasks"] + rest["tasks"]) == 2
