"""Short ways to write messages and to read tasks and stream items, for the tests of this folder."""

from typing import Any
from uuid import uuid4

from tests.interop.programs import Json


def say(text: str, **fields: Any) -> Json:
    """A user message with one text part and an id of its own; ``fields`` are taskId, contextId …"""
    return {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]} | fields


def state(task: Json) -> str:
    """The task's state without its prefix."""
    return task["status"]["state"].removeprefix("TASK_STATE_")


def text(holder: Json) -> str:
    """The text of a message or an artifact."""
    return "".join(part.get("text", "") for part in holder["parts"])


def artifacts(task: Json) -> dict[str, str]:
    """Each artifact's id and whole text."""
    return {artifact["artifactId"]: text(artifact) for artifact in task.get("artifacts", [])}


def short(item: Json) -> str:
    """A stream item in a word or two: ``task WORKING``, ``WORKING``, ``stock=A:``, ``stock+3``."""
    if "task" in item:
        return f"task {state(item['task'])}"
    if "statusUpdate" in item:
        return state(item["statusUpdate"])
    update = item["artifactUpdate"]
    sign = "+" if update.get("append") else "="
    return f"{update['artifact']['artifactId']}{sign}{text(update['artifact'])}"


def shorts(items: list[Json]) -> list[str]:
    return [short(item) for item in items]
