"""``waystation doctor``: looks at everything a broker needs, on this machine with these settings, and says what to do.

The rooms: ``host`` the machine, ``auth`` the tokens, ``database`` PostgreSQL, ``report`` the answer. Nothing is
changed, but an embedded database that is not running is started for the look and stopped again.
"""

import asyncio
from typing import Annotated

import typer

from app.cli.doctor.auth import check_auth
from app.cli.doctor.database import check_database
from app.cli.doctor.host import check_host
from app.cli.doctor.report import Finding, Level, fail, ok, show
from app.cli.environment import dev_settings, load_settings
from app.cli.errors import FAILED, CliError
from app.cli.stopping import stopped_by_sigterm

__all__ = ["doctor"]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    dev: Annotated[bool, typer.Option("--dev", help="Look at what `serve --dev` uses here.")] = False,
) -> None:
    """Check the machine, the settings and the database. Exits 1 when something fails.

    Without --dev it judges the environment as that of a broker that others reach.
    """

    async def run() -> int:
        findings = await examine(dev=dev)
        show(findings, as_json=as_json)
        return FAILED if any(finding.level is Level.FAIL for finding in findings) else 0

    raise typer.Exit(asyncio.run(stopped_by_sigterm(run())))


async def examine(*, dev: bool) -> list[Finding]:
    """All findings, worst or not, in the order of the checks."""
    try:
        settings = dev_settings() if dev else load_settings()
    except CliError as error:
        return [fail("settings", error.message, error.remedy or "see docs/quickstart.md")]
    findings = [ok("settings", "read from the environment"), *check_host(settings)]
    findings += [finding async for finding in check_auth(settings)]
    embedded = dev and not settings.database_url
    return findings + [finding async for finding in check_database(settings, embedded=embedded)]
