"""``waystation tasks``: list, look, watch, cancel (scopes tasks:read, tasks:cancel)."""

import asyncio
from typing import Annotated

import typer

from app.cli.broker import A2A_VERSION, Broker, segment
from app.cli.errors import usage
from app.cli.identity import client_token
from app.cli.options import DEFAULT_TENANT, DEFAULT_URL, Output, Tenant, Token, Url
from app.cli.output import Column, JsonObject, OutputFormat, note, print_fields, print_rows
from app.cli.render import parse_state, parts_text, short_state
from app.cli.watching import watch
from app.protocol.states import TaskState

commands = typer.Typer(help="List, follow and cancel tasks.", no_args_is_help=True)

TaskId = Annotated[str, typer.Argument(help="The task's id.", show_default=False)]

COLUMNS = (
    Column("TASK", lambda row: row["task"]["id"]),
    Column("AGENT", lambda row: row.get("agent")),
    Column("STATE", lambda row: short_state(row.get("state"))),
    Column("SEQ", lambda row: row.get("lastSeq")),
    Column("ATTEMPT", lambda row: row.get("attempt")),
    Column("SINCE", lambda row: row["task"].get("status", {}).get("timestamp")),
)


@commands.command("list")
def list_tasks(
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    state: Annotated[str | None, typer.Option(help="Only in this state, such as completed or input-required.")] = None,
    context: Annotated[str | None, typer.Option(help="Only of this context.", metavar="ID")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    url: Url = DEFAULT_URL,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """The tenant's tasks, the latest change first."""
    filters: dict[str, str | int] = {}
    if agent:
        filters["agent"] = agent
    if context:
        filters["contextId"] = context
    if state:
        try:
            filters["state"] = parse_state(state)
        except ValueError as exc:
            raise usage(str(exc), remedy=f"one of {', '.join(s.name.lower() for s in TaskState if s)}") from exc

    async def fetch() -> list[JsonObject]:
        async with Broker(url, client_token(token, tenant)) as broker:
            return [row async for row in broker.pages("/v1/tasks", "tasks", filters, limit)]

    empty = "no tasks like that" if filters else "no tasks yet: waystation send AGENT 'hello'"
    print_rows(asyncio.run(fetch()), COLUMNS, output, empty=empty)


@commands.command("get")
def get(
    task: TaskId,
    url: Url = DEFAULT_URL,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """One task: its state, who holds it, what was said and made."""
    view = asyncio.run(_view(task, url, token, tenant))
    lease: JsonObject | None = view.get("lease")
    queue: JsonObject | None = view.get("queue")
    print_fields(
        view,
        [
            *task_fields(view["task"]),
            ("agent", view.get("agent")),
            ("last seq", view.get("lastSeq")),
            ("turn", view.get("turn")),
            ("attempt", view.get("attempt")),
            ("held by", f"{lease['workerId']} until {lease['expiresAt']}" if lease else None),
            ("queued", f"position {queue.get('position')}, from {queue.get('runAt')}" if queue else None),
        ],
        output,
    )


@commands.command("watch")
def watch_task(
    task: TaskId,
    after: Annotated[str, typer.Option(help="Resume after this seq or cursor; default: from the first event.")] = "",
    url: Url = DEFAULT_URL,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Every event with its seq, across lost connections, until the task ends.

    Exits 0 completed, 1 failed, 3 canceled or rejected, 4 input required, 5 when the end could not be seen.
    """

    async def run() -> int:
        async with Broker(url, client_token(token, tenant)) as broker:
            return await watch(broker, task, after=after, output=output)

    raise typer.Exit(asyncio.run(run()))


@commands.command("cancel")
def cancel(
    task: TaskId,
    url: Url = DEFAULT_URL,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Cancel a task over its agent's A2A door. Fails, and says what won, when it has ended already."""

    async def run() -> JsonObject:
        async with Broker(url, client_token(token, tenant)) as broker:
            view = await broker.call("GET", f"/v1/tasks/{segment(task)}", retry=True)
            path = f"/agents/{segment(view['agent'])}/a2a/tasks/{segment(task)}:cancel"
            return await broker.call("POST", path, body={}, headers=A2A_VERSION)

    canceled = asyncio.run(run())
    print_fields(canceled, task_fields(canceled), output)
    note(f"{task} is {short_state(canceled['status']['state'])}")


async def _view(task: str, url: str, token: str | None, tenant: str) -> JsonObject:
    async with Broker(url, client_token(token, tenant)) as broker:
        return await broker.call("GET", f"/v1/tasks/{segment(task)}", retry=True)


def print_task(task: JsonObject) -> None:
    """An A2A Task for people."""
    print_fields(task, task_fields(task), OutputFormat.TABLE)


def task_fields(task: JsonObject) -> list[tuple[str, object]]:
    """What print_fields shows of an A2A Task: ids, state, the conversation, the artifacts."""
    status: JsonObject = task.get("status", {})
    fields: list[tuple[str, object]] = [
        ("task", task.get("id")),
        ("context", task.get("contextId")),
        ("state", short_state(status.get("state"))),
        ("since", status.get("timestamp")),
    ]
    for message in task.get("history", []):
        fields.append(("user says" if message.get("role") == "ROLE_USER" else "agent says", parts_text(message)))
    if said := status.get("message"):
        fields.append(("agent says", parts_text(said)))
    for artifact in task.get("artifacts", []):
        fields.append((f"artifact {artifact.get('name') or artifact.get('artifactId')}", parts_text(artifact)))
    return fields
