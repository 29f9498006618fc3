"""``waystation send``: one message to an agent, over its A2A door (HTTP+JSON 1.0), as any A2A client would."""

import asyncio
import json
import sys
import uuid
from typing import Annotated, Any

import typer

from app.cli.broker import A2A_VERSION, Broker, segment
from app.cli.errors import usage
from app.cli.identity import client_token
from app.cli.options import DEFAULT_TENANT, DEFAULT_URL, Output, Tenant, Token, Url
from app.cli.output import JsonObject, OutputFormat, note, print_json, print_ndjson, printable
from app.cli.render import parts_text
from app.cli.tasks import print_task
from app.cli.watching import EXIT_CODES, hint_at_answer, watch
from app.protocol.states import TaskState


def send(
    agent: Annotated[str, typer.Argument(help="The agent's id.", show_default=False)],
    text: Annotated[str, typer.Argument(help="The message's text; - reads stdin.", show_default=False)],
    data: Annotated[str | None, typer.Option(help="A data part beside the text.", metavar="JSON")] = None,
    task: Annotated[str | None, typer.Option(help="Answer or continue this task.", metavar="ID")] = None,
    context: Annotated[str | None, typer.Option(help="Start a task in this context.", metavar="ID")] = None,
    message_id: Annotated[
        str | None, typer.Option(help="The messageId: the same one sent twice is one task.", metavar="ID")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show every event until the task ends.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the answer, up to the broker's limit.")
    ] = True,
    url: Url = DEFAULT_URL,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Send a message. Exits 0 completed, 1 failed, 3 canceled or rejected, 4 input required.

    It is resent with the same messageId when the broker is away for a moment: that never makes a second task.
    """
    message = build_message(text, data=data, task=task, context=context, message_id=message_id)

    async def run() -> int:
        async with Broker(url, client_token(token, tenant)) as broker:
            after = await _last_seq(broker, task) if follow and task else ""
            answer = await send_message(broker, agent, message, immediately=follow or not wait)
            if follow and "task" in answer:
                note(f"task {answer['task']['id']}")
                return await watch(broker, answer["task"]["id"], after=after, output=output)
            return _print_answer(agent, answer, output, waited=wait)

    raise typer.Exit(asyncio.run(run()))


def build_message(
    text: str,
    *,
    data: str | None = None,
    task: str | None = None,
    context: str | None = None,
    message_id: str | None = None,
) -> JsonObject:
    """An A2A user message with a fresh messageId unless one is given."""
    parts: list[JsonObject] = [{"text": sys.stdin.read() if text == "-" else text}]
    if data is not None:
        try:
            value: Any = json.loads(data)
        except ValueError as exc:
            raise usage(f"--data is not JSON: {exc}") from exc
        parts.append({"data": value})
    message: JsonObject = {"messageId": message_id or str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts}
    return message | ({"taskId": task} if task else {}) | ({"contextId": context} if context else {})


async def send_message(broker: Broker, agent: str, message: JsonObject, *, immediately: bool) -> JsonObject:
    """SendMessage; answers ``{"task": …}`` or ``{"message": …}``. Repeats itself under the same messageId."""
    return await broker.call(
        "POST",
        f"/agents/{segment(agent)}/a2a/message:send",
        body={"message": message, "configuration": {"returnImmediately": immediately}},
        headers=A2A_VERSION,
        retry=True,
    )


async def _last_seq(broker: Broker, task: str) -> str:
    view = await broker.call("GET", f"/v1/tasks/{segment(task)}", retry=True)
    return str(view["lastSeq"])


def _print_answer(agent: str, answer: JsonObject, output: OutputFormat, *, waited: bool) -> int:
    if output is OutputFormat.JSON:
        print_json(answer)
    elif output is OutputFormat.NDJSON:
        print_ndjson([answer])
    elif "message" in answer:
        typer.echo("\n".join(printable(line) for line in parts_text(answer["message"]).splitlines()))
    else:
        print_task(answer["task"])
    if "message" in answer:
        return 0
    task_id, state = answer["task"]["id"], TaskState.parse(answer["task"]["status"]["state"])
    hint_at_answer(agent, task_id, state)
    if state in EXIT_CODES:
        return EXIT_CODES[state]
    if waited and state is TaskState.SUBMITTED:
        note(f"no worker has taken it yet: waystation worker run module:attribute --agent {agent}")
    note(f"{'still ' if waited else ''}{state.name}: waystation tasks watch {task_id}")
    return 0
