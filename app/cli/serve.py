"""``waystation serve`` and ``waystation migrate``: the broker's own process, and its schema."""

import asyncio
import time
from typing import Annotated

import typer

from app.cli.environment import (
    check_schema,
    choose_database,
    dev_settings,
    load_settings,
    migrate_schema,
    open_database,
)
from app.cli.errors import FAILED, CliError, usage
from app.cli.output import note
from app.cli.stopping import stopped_by_sigterm
from app.settings import Settings

PATIENCE_SECONDS = 8.0
Embedded = Annotated[bool, typer.Option("--embedded", help="Use the embedded PostgreSQL in .waystation (one machine).")]


def serve(
    host: Annotated[str | None, typer.Option(help="Listen here; default WAYSTATION_HOST or 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default WAYSTATION_PORT or 8080; 0 = any free one.")
    ] = None,
    grpc_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The gRPC door too, default WAYSTATION_GRPC_PORT; 0 = any.")
    ] = None,
    migrate: Annotated[bool, typer.Option("--migrate", help="Bring the schema to head first.")] = False,
    embedded: Embedded = False,
    dev: Annotated[
        bool,
        typer.Option(
            "--dev",
            help="For a first try: dev tokens with a secret kept in .waystation, --migrate, and --embedded "
            "when there is no DATABASE_URL.",
        ),
    ] = False,
) -> None:
    """Run one replica of the broker until SIGTERM or Ctrl-C.

    It refuses a schema it does not fit and says which command helps. A database that is restarting is waited for.
    """
    given = {"host": host, "port": port, "grpc_port": grpc_port}
    settings = dev_settings(**given) if dev else load_settings(**given)
    source = choose_database(settings, embedded=embedded or (dev and not settings.database_url))

    async def run() -> int:
        async with open_database(source, settings) as ready:
            problem = await _schema_problem(ready)
            if migrate or dev:
                await migrate_schema(ready)
                problem = await check_schema(ready)
            if problem:
                raise CliError(problem)
            return await _serve(ready)

    with asyncio.Runner(loop_factory=_fast_loop) as runner:
        raise typer.Exit(runner.run(stopped_by_sigterm(run())))


def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 when the schema is not at head.")
    ] = False,
    embedded: Embedded = False,
) -> None:
    """Bring the schema to head, or look whether it is there. Safe beside a running broker and beside itself."""
    settings = load_settings()
    source = choose_database(settings, embedded=embedded)

    async def run() -> int:
        async with open_database(source, settings, join=True) as ready:
            if not check:
                await migrate_schema(ready)
            if problem := await check_schema(ready):
                note(problem)
                return FAILED
            note("the schema is at head")
            return 0

    raise typer.Exit(asyncio.run(stopped_by_sigterm(run())))


async def _schema_problem(settings: Settings) -> str | None:
    """As ``check_schema``, but a database that cannot be reached is asked again for a while: it may be restarting."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await check_schema(settings)
        except CliError as error:
            if not _is_passing(error.__cause__) or time.monotonic() >= deadline:
                raise
        await asyncio.sleep(0.2)


def _is_passing(cause: BaseException | None) -> bool:
    """Nobody answers, or PostgreSQL says that it is starting up (SQLSTATE 57P03, cannot_connect_now)."""
    return isinstance(cause, OSError) or getattr(cause, "sqlstate", None) == "57P03"


def _fast_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is to be had."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(settings: Settings) -> int:
    from app import main  # the whole application: only this command needs it

    try:
        return await main.serve(settings)
    except ValueError as exc:
        raise usage(str(exc), remedy="`waystation doctor` looks at the settings") from exc
