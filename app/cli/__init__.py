"""The command line: one file a command, ``main`` the entry of ``python -m app`` and of the ``waystation`` script."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from app.cli import agents, serve, tasks, tokens, worker
from app.cli.demo import demo
from app.cli.doctor import doctor
from app.cli.errors import CliError
from app.cli.options import Output
from app.cli.output import OutputFormat, print_fields
from app.cli.send import send

__all__ = ["CliError", "app", "main"]

app = typer.Typer(
    name="waystation",
    help="Waystation: a durable task broker for A2A agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(serve.serve)
app.command()(serve.migrate)
app.command()(doctor)
app.command()(send)
app.add_typer(tasks.commands, name="tasks")
app.add_typer(agents.commands, name="agents")
app.add_typer(worker.commands, name="worker")
app.add_typer(tokens.commands, name="token")


def release() -> str:
    """The installed version; a source tree that is not installed has none."""
    try:
        return importlib.metadata.version("waystation")
    except importlib.metadata.PackageNotFoundError:
        return "(source tree)"


def print_release(wanted: bool) -> None:
    """The option --version: print and end."""
    if wanted:
        typer.echo(f"waystation {release()}")
        raise typer.Exit


@app.command()
def version(output: Output = OutputFormat.TABLE) -> None:
    """The version of Waystation and of the Python it runs on."""
    facts = {"waystation": release(), "python": platform.python_version(), "platform": platform.platform()}
    print_fields(dict(facts), list(facts.items()), output)


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=print_release)
    ] = False,
) -> None:
    """The options before the command."""


def main() -> NoReturn:
    """Run the command line and exit with its code (2 = usage). A failure is one line and its remedy on stderr."""
    try:
        code = app(prog_name="waystation", standalone_mode=False)
    except CliError as error:
        _complain(error.message, error.remedy, error.log)
        code = error.exit_code
    except typer.TyperException as error:
        path = getattr(getattr(error, "ctx", None), "command_path", "waystation")
        if message := error.format_message():  # empty: no command was given, and the help has been printed
            _complain(message, f"{path} --help")
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, remedy: str | None, log: Sequence[str] = ()) -> None:
    lines = [f"error: {message}", *(f"  | {line}" for line in log), *([f"  try: {remedy}"] if remedy else [])]
    sys.stderr.write("\n".join(lines) + "\n")
