"""Settings and database of the commands that run a broker's own parts: serve, migrate, doctor.

Which database: DATABASE_URL, when it is set; else the embedded PostgreSQL, when DATA_DIR is set or ``--embedded``
given; else none, with three remedies. A command never starts a database that nobody asked for.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from app.cli.errors import CliError, usage
from app.cli.identity import make_dev_secret, state_dir
from app.cli.stopping import finish
from app.embedded import EmbeddedPostgres, EmbeddedPostgresError, running_dsn
from app.settings import Settings

NO_DATABASE = (
    "set DATABASE_URL to a PostgreSQL 15-18; `serve --dev`, `doctor --dev` and `migrate --embedded` use the embedded "
    "one in .waystation"
)


def load_settings(**overrides: Any) -> Settings:
    """The settings of the environment with ``overrides`` (None = not given). Raises CliError, exit code 2, naming the
    variable at fault."""
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as exc:
        first = exc.errors()[0]
        name = f"WAYSTATION_{first['loc'][0]}".upper() if first["loc"] else "settings"
        raise usage(
            f"{name}: {first['msg'].removeprefix('Value error, ')}", remedy="docs/quickstart.md lists the settings"
        ) from exc
    except SettingsError as exc:
        raise usage(
            str(exc), remedy="WAYSTATION_ISSUERS is a JSON list of {issuer, audience, tenantRule, tenants}"
        ) from exc


def dev_settings(**overrides: Any) -> Settings:
    """The settings of ``serve --dev``: dev tokens, with the secret that this directory keeps; a log for people."""
    log_format = None if "WAYSTATION_LOG_FORMAT" in os.environ else "text"
    return load_settings(auth_mode="dev", dev_secret=make_dev_secret(), log_format=log_format, **overrides)


@dataclass(frozen=True, slots=True)
class DatabaseSource:
    """Where the database comes from: ``url``, or the embedded server in ``data_dir``; ``why`` names the setting."""

    url: str | None
    data_dir: Path | None
    why: str


def choose_database(settings: Settings, *, embedded: bool = False) -> DatabaseSource:
    """See the module. Raises CliError, exit code 2."""
    if settings.database_url and embedded:
        raise usage("--embedded, but a DATABASE_URL is set too", remedy="unset DATABASE_URL, or leave --embedded out")
    if settings.database_url:
        return DatabaseSource(settings.database_url, None, "DATABASE_URL")
    if embedded or settings.data_dir:
        why = "--embedded" if embedded else "WAYSTATION_DATA_DIR"
        return DatabaseSource(None, state_dir(), why)
    raise usage("no database", remedy=NO_DATABASE)


@asynccontextmanager
async def open_database(source: DatabaseSource, settings: Settings, *, join: bool = False) -> AsyncGenerator[Settings]:
    """``settings`` with the database's URL in it; an embedded server runs inside the context.

    ``join``: one that another process is running already will do. Raises CliError, exit code 2.
    """
    if source.data_dir is None:
        yield settings.model_copy(update={"database_url": source.url})
        return
    postgres = EmbeddedPostgres(source.data_dir)
    try:
        running = running_dsn(source.data_dir) if join else None
        dsn = running or await postgres.start()
    except EmbeddedPostgresError as exc:
        raise usage(str(exc)) from exc
    try:
        yield settings.model_copy(update={"database_url": dsn, "direct_database_url": None})
    finally:
        await finish(postgres.stop())


def direct_url(settings: Settings) -> str:
    """Where migrations go: past a pooler, when there is one."""
    url = settings.direct_database_url or settings.database_url
    assert url is not None, "open_database has set it"
    return url


async def check_schema(settings: Settings) -> str | None:
    """What is wrong with the schema, None at head. Raises CliError when the database cannot be reached."""
    from app.ledger import migrations  # Alembic takes half a second to import: only these commands wait for it

    try:
        return await migrations.check(direct_url(settings))
    except Exception as exc:
        raise unreachable_database(exc) from exc


async def migrate_schema(settings: Settings) -> None:
    """Bring the schema to head. Raises CliError when that fails."""
    from app.ledger import migrations

    try:
        await migrations.migrate(direct_url(settings))
    except Exception as exc:
        raise unreachable_database(exc) from exc


def unreachable_database(cause: Exception) -> CliError:
    """One line about the database, without its URL (which holds a password)."""
    text = " ".join(str(cause).split()) or type(cause).__name__
    return CliError(f"the database: {text}", remedy="`waystation doctor` looks closer")
