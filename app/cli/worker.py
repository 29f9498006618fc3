"""``waystation worker``: runs an agent's code against a broker, with the worker SDK (package waystation-worker)."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.broker import WRONG_CREDENTIAL
from app.cli.errors import CliError, usage
from app.cli.identity import HOUR, WORKER_SCOPES, mint, require_dev_secret
from app.cli.options import DEFAULT_TENANT, Tenant, Token

if TYPE_CHECKING:
    from waystation_worker import Worker

commands = typer.Typer(help="Work on an agent's tasks.", no_args_is_help=True)

RENEW_SECONDS = HOUR / 2


@commands.command("run")
def run(
    target: Annotated[
        str,
        typer.Argument(
            help="module:attribute of an a2a-sdk AgentExecutor, an async handler or a Worker.",
            show_default=False,
        ),
    ],
    agent: Annotated[
        str | None, typer.Option(help="The agent to work for; a Worker names its own.", show_default=False)
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=500, help="Tasks worked on at once.")] = 8,
    url: Annotated[
        str | None,
        typer.Option(envvar="WAYSTATION_URL", help="Base URL of the broker. Default: http://127.0.0.1:8080."),
    ] = None,
    token: Token = None,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Lease tasks and work on them until SIGTERM or Ctrl-C; what is being worked on then has time to end."""
    worker = _load(target, agent, url, concurrency)
    worker.token = token or fresh_tokens(tenant, worker.agents)
    from waystation_worker import BrokerRefused

    try:
        worker.run()
    except BrokerRefused as refused:
        raise CliError(
            f"the broker refuses this worker: {refused.message} ({refused.reason})",
            remedy=_remedy_of_refusal(refused.reason, worker.agents[0]),
        ) from refused
    except ValueError as exc:
        raise usage(str(exc)) from exc


def _load(target: str, agent: str | None, url: str | None, concurrency: int) -> "Worker":
    try:
        from waystation_worker import load
    except ModuleNotFoundError as exc:
        if exc.name != "waystation_worker":
            raise
        raise usage("the worker SDK is not installed", remedy="pip install waystation-worker (sdk/python)") from exc
    try:
        return load(target, agent=agent, url=url, concurrency=concurrency)
    except (ImportError, AttributeError, ValueError) as exc:
        raise usage(f"{target}: {exc}", remedy=_remedy_of_load(exc)) from exc


def _remedy_of_refusal(reason: str, agent: str) -> str:
    match reason:
        case "UNAUTHENTICATED":
            return WRONG_CREDENTIAL
        case "NOT_FOUND":
            return f"`waystation agents add {agent}` makes it; `waystation agents list` shows those there are"
        case _:
            return (
                f"the token needs worker:lease and the agent: `waystation token mint --agents {agent}` makes such a one"
                "; beside a dev broker leave it out (unset WAYSTATION_TOKEN)"
            )


def _remedy_of_load(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "a2a":
        return "install the A2A SDK for this Python: pip install a2a-sdk (in a checkout .venv/bin/pip)"
    return "worker run module:attribute --agent NAME, where module.py is in this directory or installed"


def fresh_tokens(tenant: str, agents: Sequence[str]) -> Callable[[], str]:
    """A source of dev tokens for a worker that lives longer than one. Raises CliError when there is no secret here."""
    secret = require_dev_secret()
    current, minted_at = "", float("-inf")

    def token() -> str:
        nonlocal current, minted_at
        now = time.monotonic()
        if now - minted_at > RENEW_SECONDS:
            current = mint(secret, tenant=tenant, subject=f"worker-{agents[0]}", scopes=WORKER_SCOPES, agents=agents)
            minted_at = now
        return current

    return token
