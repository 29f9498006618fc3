"""The official clients of A2A 0.3 do all that 0.3 has (issue: send, stream, get, cancel, resubscribe, push configs,
extended card), through both bindings, against two replicas.
"""

import asyncio
import time

import httpx
import pytest

from tests.interop.programs import ClientError, Json
from tests.interop.v0_3.conftest import V03Agent, say, short, text
from tests.support.broker import BrokerProcess
from tests.support.worker import artifact, status

pytestmark = pytest.mark.interop

AT_ONCE: Json = {"configuration": {"blocking": False}}
UNKNOWN = "01900000-0000-7000-8000-000000000000"


async def test_send_waits_for_the_work_and_both_replicas_say_the_same(agent: V03Agent) -> None:
    call = agent.user(0).open("send", message=say("go"))
    async with agent.worker(1) as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("stock", "A:"), artifact("stock", "3", append=True, last=True))
        await worker.write(lease, status("COMPLETED", "done"))
    (task,) = await call.rest()
    assert (task["kind"], task["status"]["state"], text(task["status"]["message"])) == ("task", "completed", "done")
    assert [text(whole) for whole in task["artifacts"]] == ["A:3"]
    assert [(said["role"], text(said)) for said in task["history"]] == [("user", "go")]
    assert await agent.user(1).one("get", id=task["id"]) == task


async def test_send_at_once_then_follow_up(agent: V03Agent) -> None:
    """A client that polls gets the task as it is; a second message with its id goes on with the same task."""
    user = agent.user(0)
    task = await user.one("send", message=say("go"), **AT_ONCE)
    assert task["status"]["state"] == "submitted"
    async with agent.worker(1) as worker:
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which one?"))
        assert (await user.one("get", id=task["id"]))["status"]["state"] == "input-required"
        answer = say("this one", taskId=task["id"], contextId=task["contextId"])
        sending = agent.user(1).open("send", message=answer)
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    (done,) = await sending.rest()
    assert (done["id"], done["status"]["state"]) == (task["id"], "completed")
    assert [text(said) for said in done["history"]] == ["go", "which one?", "this one"]
    assert [text(said) for said in (await user.one("get", id=task["id"], historyLength=1))["history"]] == ["this one"]


async def test_stream_gives_the_task_and_every_event_and_says_which_is_final(agent: V03Agent) -> None:
    call = agent.user(0).open("stream", message=say("go"))
    first = await call.next()
    assert first is not None
    assert short(first) == "task submitted"
    async with agent.worker(1) as worker:
        lease = await worker.lease_one()
        await worker.write(lease, status("WORKING", "counting"), artifact("stock", "A:\u2028ü"))
        await worker.write(lease, status("INPUT_REQUIRED", "which one?"))
        assert [short(item) for item in await call.rest()] == [
            "working",
            "working",
            "stock=A:\u2028ü",
            "input-required!",
        ]
        again = agent.user(0).open("stream", message=say("this one", taskId=first["id"], contextId=first["contextId"]))
        await again.next()
        await worker.write(await worker.lease_one(), status("COMPLETED"))
        assert [short(item) for item in await again.rest()] == ["working", "completed!"]


async def test_a_broker_restarts_between_send_and_resubscribe(
    agent: V03Agent, pair: tuple[BrokerProcess, BrokerProcess]
) -> None:
    """salesagent#2257, a2a-dotnet#344: kill -9, then the same task goes on at the broker that came back."""
    call = agent.user(0).open("stream", message=say("go"))
    task = await call.next()
    assert task is not None
    async with agent.worker(1) as worker:
        lease = await worker.lease_one()
        await worker.write(lease, artifact("stock", "A:"))
        await asyncio.to_thread(pair[0].kill)
        pair[0].spawn()
        await asyncio.to_thread(pair[0].wait_ready)
        resumed = agent.user(0).open("subscribe", id=task["id"])
        snapshot = await resumed.next()
        assert snapshot is not None
        assert (short(snapshot), text(snapshot["artifacts"][0])) == ("task working", "A:")
        await worker.write(lease, artifact("stock", "3", append=True, last=True), status("COMPLETED"))
        assert [short(item) for item in await resumed.rest()] == ["stock=3", "completed!"]
    done = await agent.user(1).one("get", id=task["id"])
    assert (done["status"]["state"], text(done["artifacts"][0])) == ("completed", "A:3")


async def test_cancel_ends_the_stream_on_the_other_replica(agent: V03Agent) -> None:
    call = agent.user(0).open("stream", message=say("go"))
    task = await call.next()
    assert task is not None
    async with agent.worker(0) as worker:
        lease = await worker.lease_one()
        canceling = agent.user(1).open("cancel", id=task["id"])
        await worker.heartbeat(lease, waitSeconds=10)
        await worker.write(lease, status("CANCELED", "stopped"))
    (canceled,) = await canceling.rest()
    assert (canceled["status"]["state"], text(canceled["status"]["message"])) == ("canceled", "stopped")
    assert [short(item) for item in await call.rest()][-1] == "canceled!"


async def test_files_and_data_come_back_as_they_were_sent(agent: V03Agent) -> None:
    """Each official SDK writes and reads the bytes of a file over HTTP+JSON in its own way."""
    agent.replicas[0].register_agent(
        agent.name, "shop", visibility="shared", sharedWith=["a"], card=_takes_all(agent), cancelGraceSeconds=0
    )
    parts: list[Json] = [
        {"kind": "text", "text": "go"},
        {"kind": "data", "data": {"sku": "A", "deep": [{"n": 1.5}]}},
        {"kind": "file", "file": {"bytes": "AAEC/w==", "mimeType": "application/octet-stream"}},
        {"kind": "file", "file": {"bytes": "aGVsbG8=", "mimeType": "text/plain"}},
        {"kind": "file", "file": {"uri": "https://example.org/a.pdf", "mimeType": "application/pdf"}},
    ]
    user = agent.user(0)
    task = await user.one("send", message=say("go") | {"parts": parts}, **AT_ONCE)
    shown = (await user.one("get", id=task["id"]))["history"][0]["parts"]
    assert [{key: value for key, value in part.items() if key != "metadata"} for part in shown] == parts
    async with agent.worker(1) as worker:
        lease = await worker.lease_one()
    assert [part.get("raw") for part in lease["message"]["parts"]] == [None, None, "AAEC/w==", "aGVsbG8=", None]


def _takes_all(agent: V03Agent) -> Json:
    registered = agent.replicas[0].register_agent(agent.name, "shop")["card"]
    return registered | {"defaultInputModes": ["*/*"]}


async def test_errors_have_the_codes_of_0_3(agent: V03Agent) -> None:
    """The Python client says no more of an HTTP+JSON error than its status; of a stream's not even that."""
    user = agent.user(0)
    task = await user.one("send", message=say("go"), **AT_ONCE)
    await user.one("cancel", id=task["id"])
    bare = (user.name, user.binding) == ("python-0.3.26", "HTTP+JSON")
    for call, code, http in (
        (user.open("get", id=UNKNOWN), "-32001", "404"),
        (user.open("cancel", id=task["id"]), "-32002", "400"),
        (user.open("send", message=say("more", taskId=task["id"])), "-32004", "400"),
        (user.open("stream", message=say("more", taskId=task["id"])), "-32004", "400"),
        (user.open("subscribe", id=task["id"]), "-32004", "400"),
    ):
        with pytest.raises(ClientError) as refused:
            await call.rest()
        assert refused.value.reason == (http if bare else code)


async def test_push_configs(agent: V03Agent) -> None:
    """Set on one replica, read and deleted on the other. The Python client has neither list nor delete."""
    first, second = agent.user(0), agent.user(1)
    task = await first.one("send", message=say("go"), **AT_ONCE)
    config: Json = {
        "id": "mine",
        "url": "http://127.0.0.1:9/hook",
        "token": "t",
        "authentication": {"schemes": ["Bearer"], "credentials": "secret"},
    }
    made = await first.one("set_config", taskId=task["id"], pushNotificationConfig=config)
    assert (made["taskId"], made["pushNotificationConfig"]["id"]) == (task["id"], "mine")
    named: Json = {"id": task["id"], "pushNotificationConfigId": "mine"}
    found = await second.one("get_config", **named)
    assert found["pushNotificationConfig"]["url"] == config["url"]
    assert found["pushNotificationConfig"]["authentication"]["schemes"] == ["Bearer"]
    if first.name.startswith("python"):
        return
    other: Json = {"url": "http://127.0.0.1:9/other"}
    generated = await first.one("set_config", taskId=task["id"], pushNotificationConfig=other)
    ids = {one["pushNotificationConfig"]["id"] for one in await second.one("list_configs", id=task["id"])}
    assert ids == {"mine", generated["pushNotificationConfig"]["id"]}
    await second.one("delete_config", **named)
    left = await first.one("list_configs", id=task["id"])
    assert [one["pushNotificationConfig"]["url"] for one in left] == [other["url"]]


async def test_the_extended_card(agent: V03Agent) -> None:
    agent.with_extended_card()
    for replica in (0, 1):
        wait_url = f"{agent.replicas[replica].base_url}/agents/{agent.name}"
        await asyncio.to_thread(_wait_for_extended, wait_url)
        found = await agent.user(replica).one("card")
        assert found["description"] == "For those who are let in."
        assert (found["url"], found["protocolVersion"]) == (f"{wait_url}/rpc", "0.3.0")


def _wait_for_extended(url: str) -> None:
    deadline = time.monotonic() + 5
    while True:
        shown = httpx.get(f"{url}/.well-known/agent-card.json", trust_env=False).json()
        if shown.get("supportsAuthenticatedExtendedCard"):
            return
        assert time.monotonic() < deadline, shown
        time.sleep(0.02)
