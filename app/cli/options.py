"""The options that several commands share, declared once."""

from typing import Annotated

import typer

from app.cli.identity import DEFAULT_TENANT
from app.cli.output import OutputFormat

DEFAULT_URL = "http://127.0.0.1:8080"
PANEL = "Broker"

Url = Annotated[
    str, typer.Option("--url", envvar="WAYSTATION_URL", help="Base URL of the broker.", rich_help_panel=PANEL)
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="WAYSTATION_TOKEN",
        help="Bearer token. Without one, and with the dev secret at hand, a dev token is minted.",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
Tenant = Annotated[
    str,
    typer.Option("--tenant", envvar="WAYSTATION_TENANT", help="Tenant of the minted dev token.", rich_help_panel=PANEL),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print the result.")]

__all__ = ["DEFAULT_TENANT", "DEFAULT_URL", "Output", "Tenant", "Token", "Url"]
