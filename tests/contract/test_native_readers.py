"""The readers' native API (native-api.md, Readers; resume-contract.md, Transport)."""

import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import Json, say, state
from tests.support.calls import reason
from tests.support.tokens import bearer, mint
from tests.support.worker import artifact, status


@pytest.fixture
def door_name() -> str:
    return "rest"


@dataclass
class Event:
    """One frame of a native stream, taken apart by a naive parser."""

    id: str
    event: str
    data: Json


def parse(raw: bytes) -> list[Event]:
    """Split on blank lines, and each line at its first ": "."""
    events: list[Event] = []
    for block in raw.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            events.append(Event(fields["id"], fields["event"], json.loads(fields["data"])))
    return events


class Reader:
    """Calls of one tenant to ``/v1/tasks``."""

    def __init__(self, agent: Agent, tenant: str = "a") -> None:
        self._url = agent.broker.base_url
        self._headers = bearer(mint(tenant))

    def get(self, path: str, params: Json | None = None, **headers: str) -> httpx.Response:
        """A whole answer: only for streams that end."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.get(
            f"{self._url}/v1/tasks{path}", params=params, headers=self._headers | named, timeout=20, trust_env=False
        )

    def replay(self, task_id: str, cursor: str | None = None, **params: Any) -> list[Event]:
        headers = {} if cursor is None else {"Last_Event_ID": cursor}
        answer = self.get(f"/{task_id}/events", params, **headers)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        return parse(answer.content)

    def page(self, task_id: str, **params: Any) -> Json:
        answer = self.get(f"/{task_id}/events", params, Accept="application/json")
        assert answer.status_code == 200, answer.text
        return answer.json()


async def finished(agent: Agent) -> str:
    """1 task.submitted, 2 turn.started, 3 status, 4 artifact.replace, 5 artifact.delta, 6 status COMPLETED."""
    task = await agent.door().send(say("go"), now=True)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("x", "A"), artifact("x", "B", append=True), status("COMPLETED", "done"))
    return task["id"]


KINDS = ["task.submitted", "turn.started", "status", "artifact.replace", "artifact.delta", "status"]


async def test_the_whole_log_as_a_stream(agent: Agent) -> None:
    task_id = await finished(agent)
    events = Reader(agent).replay(task_id)
    assert [event.event for event in events] == KINDS
    assert [event.id for event in events] == [f"1.{seq}" for seq in range(1, 7)]
    for seq, event in enumerate(events, 1):
        assert (event.data["seq"], event.data["id"], event.data["kind"]) == (seq, event.id, event.event)
        assert event.data["covers"] == [seq, seq]
        assert event.data["at"].endswith("Z")
        assert set(event.data["actor"]) == {"kind", "id"}
    assert [event.data["actor"]["kind"] for event in events] == ["client", "broker", *["worker"] * 4]
    assert [event.data["turn"] for event in events[1:]] == [1] * 5
    assert events[0].data["task"]["id"] == task_id
    assert events[4].data["artifactUpdate"]["append"] is True
    assert events[5].data["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_page_has_the_same_events(agent: Agent) -> None:
    task_id = await finished(agent)
    reader = Reader(agent)
    page = reader.page(task_id)
    assert page["events"] == [event.data for event in reader.replay(task_id)]
    assert {key: page[key] for key in page if key != "events"} == {
        "lastSeq": 6, "minSeq": 1, "terminalSeq": 6, "nextAfter": 6,
    }  # fmt: skip
    seen: list[int] = []
    after = 0
    while events := (page := reader.page(task_id, after_sequence_number=after, limit=4))["events"]:
        assert events[0]["covers"][0] == after + 1
        seen += [event["seq"] for event in events]
        after = page["nextAfter"]
    assert (seen, page["nextAfter"]) == ([1, 2, 3, 4, 5, 6], 6)


async def test_scenario_1_and_5_exactly_what_follows_the_greater_cursor(agent: Agent) -> None:
    task_id = await finished(agent)
    reader = Reader(agent)
    assert [event.data["seq"] for event in reader.replay(task_id, "1.4")] == [5, 6]
    assert [event.data["seq"] for event in reader.replay(task_id, "4", after_sequence_number=2)] == [5, 6]
    assert [event.data["seq"] for event in reader.replay(task_id, "2", after_sequence_number="1.4")] == [5, 6]
    assert [event.data["seq"] for event in reader.replay(task_id, "")] == [1, 2, 3, 4, 5, 6], "empty counts as none"


async def test_scenario_12_a_cursor_that_has_seen_the_end_is_204(agent: Agent) -> None:
    task_id = await finished(agent)
    reader = Reader(agent)
    for cursor in ("1.6", "6", "1.99"):
        answer = reader.get(f"/{task_id}/events", Last_Event_ID=cursor)
        assert (answer.status_code, answer.content) == (204, b"")
    assert reader.page(task_id, after_sequence_number=6)["events"] == []


async def test_follow_false_ends_at_the_end_as_it_is_now(agent: Agent) -> None:
    task = await agent.door().send(say("go"), now=True)
    reader = Reader(agent)
    assert [event.event for event in reader.replay(task["id"], follow="false")] == ["task.submitted"]
    assert reader.replay(task["id"], "1.1", follow="false") == []


@pytest.mark.parametrize(
    ("cursor", "reset"),
    [
        ("1.99", {"reason": "cursor_ahead", "lostFrom": 2, "lostTo": 99, "snapshotSeq": 1}),
        ("2.1", {"reason": "incarnation", "lostFrom": 1, "lostTo": 1, "snapshotSeq": 1}),
    ],
)
async def test_scenario_10_and_11_a_reset_is_explicit(agent: Agent, cursor: str, reset: Json) -> None:
    task = await agent.door().send(say("go"), now=True)
    reader = Reader(agent)
    (event,) = reader.replay(task["id"], cursor, follow="false")
    assert (event.id, event.event) == ("1.1", "reset")
    assert {key: event.data[key] for key in reset} == reset
    assert event.data["task"]["id"] == task["id"]
    page = reader.page(task["id"], after_sequence_number=cursor)
    assert ([entry["kind"] for entry in page["events"]], page["nextAfter"]) == (["reset"], 1)


async def test_a_reset_of_an_ended_task_ends_the_stream(agent: Agent) -> None:
    task_id = await finished(agent)
    assert [event.event for event in Reader(agent).replay(task_id, "2.3")] == ["reset"]


@pytest.mark.parametrize(
    "params",
    [
        {"after_sequence_number": "garbage"},
        {"after_sequence_number": "-1"},
        {"after_sequence_number": str(2**63)},
        {"after_sequence_number": "1.2.3"},
        {"after_sequence_number": "٣"},
        {"after_sequence_number": ["1", "2"]},
        {"follow": "perhaps"},
        {"limit": "0"},
        {"limit": "1001"},
        {"limit": "ten"},
    ],
)
async def test_bad_queries_of_events(agent: Agent, params: Json) -> None:
    task_id = await finished(agent)
    for accept in ("application/json", "text/event-stream"):
        answer = Reader(agent).get(f"/{task_id}/events", params, Accept=accept)
        assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


async def test_a_malformed_last_event_id_is_400(agent: Agent) -> None:
    task_id = await finished(agent)
    for cursor in ("x", "1.", ".1", "1.-1", "1.1x"):
        assert Reader(agent).get(f"/{task_id}/events", Last_Event_ID=cursor).status_code == 400


async def test_one_task_and_all_about_it(agent: Agent) -> None:
    door, reader = agent.door(), Reader(agent)
    task = await door.send(say("go"), now=True)
    shown = reader.get(f"/{task['id']}").json()
    assert {key: shown[key] for key in shown if key not in ("task", "queue", "createdAt")} == {
        "agent": agent.id, "state": "TASK_STATE_SUBMITTED", "lastSeq": 1, "minSeq": 1, "terminalSeq": None, "turn": 1,
        "attempt": 0, "fence": 0, "lease": None, "pendingActions": [], "effects": {},
    }  # fmt: skip
    assert (shown["queue"]["position"], shown["queue"]["priority"]) == (1, 5)
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        shown = reader.get(f"/{task['id']}").json()
        assert (shown["lease"]["workerId"], shown["queue"], shown["attempt"]) == (worker.worker_id, None, 1)
        assert shown["fence"] == lease["fence"]
        await worker.write(lease, artifact("x", "y"), status("COMPLETED"))
    shown = reader.get(f"/{task['id']}").json()
    assert (shown["lease"], shown["queue"], shown["terminalSeq"]) == (None, None, shown["lastSeq"])
    assert shown["task"]["artifacts"][0]["artifactId"] == "x"


async def test_query_parameters_given_twice_are_refused_where_none_are_asked_for(agent: Agent) -> None:
    task = await agent.door().send(say("go"), now=True)
    answer = Reader(agent).get(f"/{task['id']}", {"x": ["1", "2"]})
    assert (answer.status_code, answer.json()["error"]["details"][0]["reason"]) == (400, "INVALID_ARGUMENT")
    assert Reader(agent).get(f"/{task['id']}", {"x": "1"}).status_code == 200
    async with agent.worker() as worker:
        lease = await worker.lease_one()
        answer = await worker.http.post(f"/v1/leases/{lease['leaseId']}/release?x=1&x=2")
        assert (answer.status_code, reason(answer)) == (400, "INVALID_ARGUMENT")
        assert (await worker.heartbeat(lease)).json()["results"][0]["ok"]


async def test_turns(agent: Agent) -> None:
    door, reader = agent.door(), Reader(agent)
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED"))
    await door.send(say("this"), now=True)
    await door.send(say("this", taskId=task["id"]), now=True)
    await door.send(say("and that", taskId=task["id"]), now=True)
    answer = reader.get(f"/{task['id']}/turns").json()
    assert [(turn["turn"], turn["state"]) for turn in answer["turns"]] == [(1, "paused"), (2, "queued"), (3, "queued")]
    assert answer["nextPageToken"] == ""
    first = reader.get(f"/{task['id']}/turns", {"pageSize": 2}).json()
    second = reader.get(f"/{task['id']}/turns", {"pageSize": 2, "pageToken": first["nextPageToken"]}).json()
    assert [turn["turn"] for turn in first["turns"] + second["turns"]] == [1, 2, 3]
    assert second["nextPageToken"] == ""
    other = await door.send(say("go"), now=True)
    for query in ({"pageSize": 0}, {"pageSize": 101}, {"pageToken": "x"}):
        assert reader.get(f"/{task['id']}/turns", query).status_code == 400
    assert reader.get(f"/{other['id']}/turns", {"pageToken": first["nextPageToken"]}).status_code == 400


async def test_the_tenants_tasks_of_all_agents(agent: Agent) -> None:
    other = Agent(agent.broker, "rest")
    other.register()
    tenant_context = f"c-{agent.id}"
    one = await agent.door().send(say("1", contextId=tenant_context), now=True)
    two = await agent.door(agent=other.id).send(say("2", contextId=tenant_context), now=True)
    await agent.door().cancel(one["id"])
    reader = Reader(agent)

    def ids(**filters: object) -> list[str]:
        return [row["task"]["id"] for row in reader.get("", {"contextId": tenant_context, **filters}).json()["tasks"]]

    assert ids() == [one["id"], two["id"]], "the latest status first"
    assert ids(agent=other.id) == [two["id"]]
    assert ids(state="TASK_STATE_CANCELED") == [one["id"]]
    row = reader.get("", {"agent": other.id}).json()["tasks"][0]
    assert (row["agent"], row["state"], row["lastSeq"], state(row["task"])) == (
        other.id, "TASK_STATE_SUBMITTED", 1, "SUBMITTED",
    )  # fmt: skip
    first = reader.get("", {"contextId": tenant_context, "pageSize": 1}).json()
    second = reader.get("", {"contextId": tenant_context, "pageSize": 1, "pageToken": first["nextPageToken"]}).json()
    assert [page["tasks"][0]["task"]["id"] for page in (first, second)] == [one["id"], two["id"]]
    assert second["nextPageToken"] == ""
    of_another_filter = {"pageToken": first["nextPageToken"]}
    for bad in (
        {"pageSize": 0}, {"pageSize": 101}, {"state": "bogus"}, {"after": "x"}, {"pageToken": "x"}, of_another_filter,
    ):  # fmt: skip
        answer = reader.get("", bad)
        assert answer.status_code == 400, bad
        told = answer.json()["error"]["details"][0]
        assert (told["reason"], told["domain"]) == ("INVALID_ARGUMENT", "waystation")
    assert Reader(agent, "b").get("", {"contextId": tenant_context}).json()["tasks"] == []


async def test_each_transition_appends_what_the_table_says(agent: Agent) -> None:
    """native-api.md, What each transition appends."""
    agent.register(cancelGraceSeconds=0)
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        await worker.retry(await worker.lease_one(), "boom", delaySeconds=0)
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED"))
        await door.send(say("this", taskId=task["id"]), now=True)
        lease = await worker.lease_one()
        await door.send(say("and that", taskId=task["id"]), now=True)
        await worker.write(lease, status("COMPLETED", "first"))
        await worker.lease_one()
    await door.cancel(task["id"])

    def line(event: Json) -> str:
        told = event.get("statusUpdate", {}).get("status", {}).get("state", "")
        return f"{event['kind']} {told.removeprefix('TASK_STATE_')} {event['turn']}.{event['attempt']}".replace(
            "  ", " "
        )

    events = Reader(agent).page(task["id"])["events"]
    assert [line(event) for event in events] == [
        "task.submitted 1.0",
        "turn.started 1.1",
        "status WORKING 1.1",
        "status WORKING 1.1",  # retry, with the reason
        "status WORKING 1.2",
        "status INPUT_REQUIRED 1.2",
        "message.user 2.0",
        "status WORKING 2.0",
        "turn.started 2.1",
        "status WORKING 2.1",
        "message.user 3.0",
        "turn.ended WORKING 2.1",
        "turn.started 3.1",
        "status WORKING 3.1",
        "cancel.requested WORKING 3.1",
        "status CANCELED 3.1",
    ]
    assert [event["seq"] for event in events] == list(range(1, 17))
