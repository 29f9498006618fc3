"""What tests say and look for again and again: messages over the REST door, and the parts of an error."""

from typing import Any
from uuid import uuid4

import httpx

Json = dict[str, Any]


def user_message(text: str = "hi", **fields: Any) -> Json:
    return {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]} | fields


async def send(client: httpx.AsyncClient, agent: str, text: str = "hi", *, wait: bool = False, **fields: Any) -> Json:
    """Send a message that must be accepted; the Task. ``wait`` blocks until the turn has ended."""
    body = {"message": user_message(text, **fields), "configuration": {"returnImmediately": not wait}}
    answer = await client.post(f"/agents/{agent}/a2a/message:send", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["task"]


async def get_task(client: httpx.AsyncClient, agent: str, task_id: str) -> Json:
    answer = await client.get(f"/agents/{agent}/a2a/tasks/{task_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def native_events(client: httpx.AsyncClient, task_id: str) -> list[Json]:
    """The whole log of a task as the native API shows it."""
    headers = {"Accept": "application/json"}
    answer = await client.get(f"/v1/tasks/{task_id}/events", params={"limit": 1000}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["events"]


def reason(answer: httpx.Response) -> str:
    """ErrorInfo's reason of a REST-shaped error."""
    return info(answer)["reason"]


def info(answer: httpx.Response) -> Json:
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return next(detail for detail in error["details"] if detail["@type"].endswith("ErrorInfo"))


def violations(answer: httpx.Response) -> dict[str, str]:
    """Field path to description."""
    return {
        violation["field"]: violation["description"]
        for detail in answer.json()["error"]["details"]
        for violation in detail.get("fieldViolations", [])
    }
