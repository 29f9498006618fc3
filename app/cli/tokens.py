"""``waystation token``: dev tokens. A broker in oidc mode accepts only those of its identity providers."""

from typing import Annotated

import typer

from app.auth.scopes import expand
from app.cli.errors import usage
from app.cli.identity import CLIENT_SCOPES, DAY, DEFAULT_TENANT, HOUR, WORKER_SCOPES, mint, require_dev_secret

commands = typer.Typer(help="Make tokens for a broker in dev mode.", no_args_is_help=True)


@commands.command("mint")
def mint_token(
    tenant: Annotated[
        str, typer.Option("--tenant", envvar="WAYSTATION_TENANT", help="Who owns what it makes.")
    ] = DEFAULT_TENANT,
    sub: Annotated[str, typer.Option(help="The subject.")] = "cli",
    scope: Annotated[
        str | None,
        typer.Option(
            help="Space-separated, tasks:* for all of tasks. Default: a client's; with --agents a worker's.",
            show_default=False,
        ),
    ] = None,
    agents: Annotated[
        str, typer.Option(help="For a worker: the agents it may lease for, a,b.", show_default=False)
    ] = "",
    ttl: Annotated[int, typer.Option(min=1, max=DAY, help="Seconds of validity.")] = HOUR,
) -> None:
    """Print one HS256 token, signed with the dev secret."""
    try:
        asked = sorted(expand(scope.split())) if scope is not None else []
    except ValueError as exc:
        raise usage(str(exc)) from exc
    names = [name.strip() for name in agents.split(",") if name.strip()]
    scopes = asked or list(WORKER_SCOPES if names else CLIENT_SCOPES)
    typer.echo(mint(require_dev_secret(), tenant=tenant, subject=sub, scopes=scopes, agents=names, ttl=ttl))
