"""A task from its first message to its end, in plain HTTP. Read these tests in order: each adds one idea."""

import json
from typing import Any

import httpx

Json = dict[str, Any]


def send(client: httpx.Client, text: str, **fields: str) -> Json:
    """A client sends a message and does not wait: the answer is the task, durable already."""
    message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]} | fields
    body = {"message": message, "configuration": {"returnImmediately": True}}
    return client.post("/agents/stock/a2a/message:send", json=body).json()["task"]


def lease(worker: httpx.Client) -> Json:
    """A worker asks for work and waits for it up to 5 s."""
    body = {"workerId": "w1", "max": 1, "waitSeconds": 5}
    return worker.post("/v1/agents/stock/leases", json=body).json()["leases"][0]


def write(worker: httpx.Client, held: Json, *events: Json) -> httpx.Response:
    """The holder of a lease writes what happens; each call is one transaction."""
    return worker.post(f"/v1/leases/{held['leaseId']}/events", json={"events": list(events)})


def status(state: str, text: str | None = None) -> Json:
    message = {"message": {"messageId": f"a-{text}", "role": "ROLE_AGENT", "parts": [{"text": text}]}} if text else {}
    return {"statusUpdate": {"status": {"state": f"TASK_STATE_{state}"} | message}}


def chunk(text: str, *, append: bool) -> Json:
    return {"artifactUpdate": {"artifact": {"artifactId": "stock", "parts": [{"text": text}]}, "append": append}}


def replay(client: httpx.Client, task_id: str, after: int = 0) -> list[Json]:
    """Every event of a task after a sequence number, in order, and no event twice."""
    page = client.get(
        f"/v1/tasks/{task_id}/events", params={"after_sequence_number": after}, headers={"Accept": "application/json"}
    )
    return page.json()["events"]


def test_a_message_makes_a_task(client: httpx.Client) -> None:
    task = send(client, "sku:A")
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert client.get(f"/agents/stock/a2a/tasks/{task['id']}").json()["history"] == task["history"]


def test_a_worker_leases_it_and_finishes_it(client: httpx.Client, worker: httpx.Client) -> None:
    task = send(client, "sku:A")
    held = lease(worker)
    assert (held["taskId"], held["message"]["parts"]) == (task["id"], [{"text": "sku:A"}])
    write(worker, held, chunk("A:", append=False), chunk("3", append=True))
    write(worker, held, status("COMPLETED"))

    task = client.get(f"/agents/stock/a2a/tasks/{task['id']}").json()
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["A:", "3"]


def test_everything_that_happened_is_an_event(client: httpx.Client, worker: httpx.Client) -> None:
    task = send(client, "sku:A")
    held = lease(worker)
    write(worker, held, chunk("A:3", append=False), status("COMPLETED"))
    events = replay(client, task["id"])
    assert [(event["seq"], event["kind"]) for event in events] == [
        (1, "task.submitted"),
        (2, "turn.started"),
        (3, "status"),  # WORKING: the claim
        (4, "artifact.replace"),
        (5, "status"),  # COMPLETED
    ]
    assert replay(client, task["id"], after=3) == events[3:], "a reader goes on where it stopped"


def test_a_stream_is_the_same_events_as_they_come(client: httpx.Client, worker: httpx.Client) -> None:
    task = send(client, "sku:A")
    with client.stream("GET", f"/agents/stock/a2a/tasks/{task['id']}:subscribe") as stream:
        lines = (line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: "))
        assert "task" in json.loads(next(lines)), "first the task as it stands, then what happens to it"
        write(worker, lease(worker), status("COMPLETED"))
        states = [json.loads(line)["statusUpdate"]["status"]["state"] for line in lines]
    assert states == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"], "the terminal event closes the stream"


def test_an_agent_asks_and_the_client_answers(client: httpx.Client, worker: httpx.Client) -> None:
    task = send(client, "how many?")
    write(worker, lease(worker), status("INPUT_REQUIRED", "of what?"))
    assert send(client, "sku:A", taskId=task["id"])["status"]["state"] == "TASK_STATE_WORKING"
    held = lease(worker)
    assert (held["turn"], held["message"]["parts"]) == (2, [{"text": "sku:A"}])
    write(worker, held, status("COMPLETED", "3"))
    history = client.get(f"/agents/stock/a2a/tasks/{task['id']}").json()["history"]
    assert [message["parts"][0]["text"] for message in history] == ["how many?", "of what?", "sku:A"]


def test_only_one_end_wins(client: httpx.Client, worker: httpx.Client) -> None:
    task = send(client, "sku:A")
    held = lease(worker)
    write(worker, held, status("COMPLETED"))
    refused = client.post(f"/agents/stock/a2a/tasks/{task['id']}:cancel").json()["error"]
    assert refused["details"][0]["reason"] == "TASK_NOT_CANCELABLE"
    late = write(worker, held, status("FAILED"))
    assert (late.status_code, late.json()["error"]["details"][0]["reason"]) == (409, "TASK_TERMINAL")


def test_the_same_message_again_is_the_same_task(client: httpx.Client) -> None:
    assert send(client, "sku:A")["id"] == send(client, "sku:A")["id"], "a lost answer is fetched by sending again"
