"""``waystation agents``: the registered destinations (scope agents:admin to change, agents:read to look)."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from app.cli.broker import Broker, segment
from app.cli.errors import usage
from app.cli.identity import client_token
from app.cli.options import DEFAULT_TENANT, DEFAULT_URL, Output, Tenant, Token, Url
from app.cli.output import Column, JsonObject, OutputFormat, note, print_fields, print_rows

commands = typer.Typer(help="Register agents and look at them.", no_args_is_help=True)

AgentId = Annotated[
    str, typer.Argument(help="The agent's id: lower-case letters, digits and hyphens.", show_default=False)
]

COLUMNS: tuple[Column, ...] = (
    Column("AGENT", lambda row: row.get("agent") or row.get("id")),
    Column("MODE", lambda row: row.get("mode")),
    Column("VISIBILITY", lambda row: row.get("visibility")),
    Column("CARD", lambda row: row.get("cardVisibility")),
    Column("LEASE", lambda row: f"{row.get('leaseSeconds')} s"),
    Column("DESCRIPTION", lambda row: row.get("card", {}).get("description")),
)


def default_card(name: str, description: str) -> JsonObject:
    """A card with everything A2A requires of one (§4.4.1) but the interfaces, which the broker fills in."""
    return {
        "name": name,
        "description": description,
        "version": "1.0.0",
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": name, "name": name, "description": description, "tags": ["waystation"]}],
    }


@commands.command("add")
def add(
    agent: AgentId,
    description: Annotated[str | None, typer.Option(help="What the agent does, for the card made here.")] = None,
    card: Annotated[str | None, typer.Option(help="File with an A2A AgentCard; - is stdin.", metavar="FILE")] = None,
    body: Annotated[
        str | None, typer.Option(help="File with the whole registration (docs/agents.md).", metavar="FILE")
    ] = None,
    share: Annotated[
        list[str] | None, typer.Option(help="Share with this tenant, or * for all; may repeat.", metavar="TENANT")
    ] = None,
    public_card: Annotated[bool, typer.Option("--public-card", help="Show the card without a token.")] = False,
    lease_seconds: Annotated[int | None, typer.Option(min=1, help="Lease length.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create an agent, or replace its settings. Without --card and --body it gets a plain text card."""
    if body and (card or description or share or public_card or lease_seconds):
        raise usage("--body is the whole registration", remedy="put the other options into that file")
    registration: JsonObject = _read_json(body) if body else {"card": _card(agent, description, card)}
    if share:
        registration |= {"visibility": "shared", "sharedWith": share}
    if public_card:
        registration["cardVisibility"] = "public"
    if lease_seconds:
        registration["leaseSeconds"] = lease_seconds
    answer = _call("PUT", agent, url, token, tenant, registration)
    _show(agent, answer, url, output)
    note(f"next, something that works for it: waystation worker run module:attribute --agent {agent}")


@commands.command("list")
def list_agents(
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 100,
    url: Url = DEFAULT_URL,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """The agents this token may use."""

    async def fetch() -> list[JsonObject]:
        async with Broker(url, client_token(token, tenant)) as broker:
            return [row async for row in broker.pages("/v1/agents", "agents", {}, limit)]

    print_rows(asyncio.run(fetch()), COLUMNS, output, empty="no agents yet: waystation agents add NAME")


@commands.command("show")
def show(
    agent: AgentId,
    url: Url = DEFAULT_URL,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """One agent with all its settings."""
    _show(agent, _call("GET", agent, url, token, tenant), url, output)


@commands.command("remove")
def remove(
    agent: AgentId,
    force: Annotated[bool, typer.Option("--force", help="Fail its live tasks instead of refusing.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Delete an agent. Its tasks stay readable; with live tasks it is refused, unless forced."""
    _call("DELETE", agent, url, token, tenant, params={"force": "true"} if force else {})
    note(f"removed {agent}")


def _call(
    method: str,
    agent: str,
    url: str,
    token: str | None,
    tenant: str,
    body: JsonObject | None = None,
    params: dict[str, str | int] | None = None,
) -> JsonObject:
    async def call() -> JsonObject:
        async with Broker(url, client_token(token, tenant)) as broker:
            path = f"/v1/agents/{segment(agent)}"
            return await broker.call(method, path, body=body, params=params, retry=method != "DELETE")

    return asyncio.run(call())


def _show(agent: str, answer: JsonObject, url: str, output: OutputFormat) -> None:
    base = f"{url.rstrip('/')}/agents/{segment(agent)}"
    shown = {key: value for key, value in answer.items() if key not in ("agent", "id", "card") and value is not None}
    print_fields(
        answer,
        [
            ("agent", agent),
            ("description", answer.get("card", {}).get("description")),
            ("card URL", f"{base}/.well-known/agent-card.json"),
            ("JSON-RPC", f"{base}/rpc"),
            ("HTTP+JSON", f"{base}/a2a"),
            *((key, value if isinstance(value, str) else json.dumps(value)) for key, value in sorted(shown.items())),
        ],
        output,
    )


def _card(agent: str, description: str | None, card: str | None) -> JsonObject:
    if card is None:
        return default_card(agent, description or f"The agent {agent}")
    given = _read_json(card)
    return given | {"description": description} if description else given


def _read_json(path: str) -> JsonObject:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        value: Any = json.loads(text)
    except OSError as exc:
        raise usage(f"cannot read {path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise usage(f"{path} is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise usage(f"{path} is not a JSON object")
    return cast("JsonObject", value)
