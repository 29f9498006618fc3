"""Faults of known-faults.md that no other file tries by name, through every door that can show them."""

import asyncio
import json

import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import DoorError, say, short, state, text
from tests.contract.every_door import DOORS
from tests.support.worker import artifact, status

BROKER_ENVIRONMENT = {"WAYSTATION_GRPC_PORT": "0"}


ALL = [name for name in DOORS if name != "legacy"]
HTTP = [name for name in ALL if name != "grpc"]


@pytest.fixture(params=ALL)
def door_name(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_a2a_python_296_a_client_that_drops_cancels_nothing(agent: Agent) -> None:
    """Neither one that waits for its answer nor one that reads a stream."""
    door = agent.door()
    async with agent.worker() as worker:
        waiting = asyncio.create_task(door.send(say("1")))
        first = await worker.lease_one()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with door.open("SendStreamingMessage", {"message": say("2")}) as stream:
            assert short(await stream.next() or {}) == "task SUBMITTED"
            second = await worker.lease_one()
        for lease in (first, second):
            written = await worker.write(lease, artifact("x", "1"), status("COMPLETED", "done"))
            assert written["signal"] is None
            assert state(await door.get(lease["taskId"])) == "COMPLETED"


async def test_a2a_java_741_a_completed_task_takes_no_message_of_either_kind(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    async with agent.worker() as worker:
        await worker.write(await worker.lease_one(), status("COMPLETED"))
    more = say("more", taskId=task["id"])
    with pytest.raises(DoorError, match="UNSUPPORTED_OPERATION"):
        await door.send(more)
    with pytest.raises(DoorError, match="UNSUPPORTED_OPERATION"):
        async with door.open("SendStreamingMessage", {"message": more}):
            pass


@pytest.mark.parametrize("door_name", HTTP)
async def test_xagent_1358_no_proxy_holds_a_stream_back(agent: Agent) -> None:
    async with agent.door().open("SendStreamingMessage", {"message": say("go")}) as stream:
        headers = stream.response.headers
        assert (headers["x-accel-buffering"], headers["cache-control"]) == ("no", "no-cache")
        assert "content-length" not in headers


@pytest.mark.parametrize("door_name", HTTP)
async def test_a2a_python_1078_streams_are_raw_utf_8(agent: Agent) -> None:
    """Not escaped, but for U+2028, U+2029 and U+0085, which some parsers take for line ends."""
    said = "grüße 漢字 \U0001f600 \u2028"
    door = agent.door()
    async with door.open("SendStreamingMessage", {"message": say(said)}) as stream:
        frame = await stream.next_frame()
        assert frame is not None
        assert text(frame.data["task"]["history"][0]) == said
        assert "grüße 漢字 \U0001f600 \\u2028" in frame.raw


@pytest.mark.parametrize("door_name", ["jsonrpc", "jsonrpc-0.3"])
async def test_deja_vu_1796_a_batch_is_one_error_and_bad_json_has_no_id(agent: Agent) -> None:
    door = agent.door()
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
    for raw, code in ((json.dumps([call, call]), -32600), ("[]", -32600), ('{"jsonrpc": "2.0", "id": 1', -32700)):
        answer = await door.http.post(f"{door.base}/rpc", content=raw, headers={"Content-Type": "application/json"})
        assert (answer.json()["id"], answer.json()["error"]["code"]) == (None, code)


async def test_sample_autonomous_cloud_coding_agents_58_a_duplicate_is_the_original_task(agent: Agent) -> None:
    door, message = agent.door(), say("go")
    first = await door.send(message, now=True)
    assert not door.replayed
    again = await door.send(message, now=True)
    assert (again["id"], door.replayed) == (first["id"], True)


async def test_a2a_1249_the_context_is_inferred_from_the_task(agent: Agent) -> None:
    door = agent.door()
    task = await door.send(say("go"), now=True)
    again = await door.send(say("more", taskId=task["id"]), now=True)
    assert (again["id"], again["contextId"]) == (task["id"], task["contextId"])


async def test_adk_python_3765_the_task_resumes_the_same_one(agent: Agent) -> None:
    door = agent.door()
    async with agent.worker() as worker:
        task = await door.send(say("go"), now=True)
        await worker.write(await worker.lease_one(), status("INPUT_REQUIRED", "which?"))
        resumed = await door.send(say("this", taskId=task["id"]), now=True)
        lease = await worker.lease_one()
    assert (resumed["id"], lease["taskId"], lease["turn"]) == (task["id"], task["id"], 2)
