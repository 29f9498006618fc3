"""An ordinary client with the official a2a-sdk, which knows nothing of Waystation.

It sends a message and shows the stream, the task and the list; or, with --cancel, leaves the stream, subscribes anew
and cancels the task. At the top of the checkout, with a2a-sdk in .venv:

WAYSTATION_TOKEN=$(./waystation token mint) .venv/bin/python examples/client.py AGENT TEXT [--cancel]
"""

import asyncio
import os
import sys

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, get_stream_response_text, new_text_message
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError

BROKER = os.environ.get("WAYSTATION_URL", "http://127.0.0.1:8080")
# Heartbeats come every 15 s and a blocking send is answered after 30 s: httpx's own 5 s would cut both.
TIMEOUT = httpx.Timeout(60)


async def stream(client: Client, text: str) -> None:
    """Send a message and show what comes, then the task and the list it is in."""
    task_id = ""
    message = new_text_message(text, role=Role.ROLE_USER)  # its messageId makes a repeated send the same task
    async for event in client.send_message(SendMessageRequest(message=message)):
        task_id = task_id or event.task.id  # the first event is the Task
        print(described(event))
    task = await client.get_task(GetTaskRequest(id=task_id))
    artifacts = {artifact.name: get_artifact_text(artifact, delimiter="") for artifact in task.artifacts}
    print("get:", TaskState.Name(task.status.state), artifacts)
    listed = await client.list_tasks(ListTasksRequest(page_size=10))
    print("list:", listed.total_size, "tasks, the latest", listed.tasks[0].id)


async def cancel(client: Client, text: str) -> None:
    """Leave the stream after its first event, which the task does not mind; subscribe to it anew, and cancel it."""
    message = new_text_message(text, role=Role.ROLE_USER)
    first = await anext(client.send_message(SendMessageRequest(message=message)))
    canceling: asyncio.Task[object] | None = None
    async for event in client.subscribe(SubscribeToTaskRequest(id=first.task.id)):
        print(described(event))
        canceling = canceling or asyncio.create_task(client.cancel_task(CancelTaskRequest(id=first.task.id)))
    try:
        if canceling:
            await canceling
    except TaskNotCancelableError:
        print("the agent was faster: the task has ended")


def described(event: StreamResponse) -> str:
    """One line for what a stream says."""
    kind = event.WhichOneof("payload") or ""
    holder = event.task if kind == "task" else event.status_update
    state = TaskState.Name(holder.status.state) if kind in ("task", "status_update") else ""
    return " ".join(word for word in (f"{kind}:", state, get_stream_response_text(event)) if word)


async def main(agent: str, text: str, *options: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['WAYSTATION_TOKEN']}"}  # the card asks for the token too
    async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT) as http:
        client = await ClientFactory(ClientConfig(httpx_client=http)).create_from_url(f"{BROKER}/agents/{agent}")
        await (cancel if "--cancel" in options else stream)(client, text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
