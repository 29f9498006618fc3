"""The one kind of failure a command shows: what is wrong and what to do, one line each. Printed by ``app.cli.main``."""

from collections.abc import Sequence

import typer

FAILED = 1
USAGE = 2


class CliError(typer.TyperException):
    """Ends the command with ``exit_code``. ``message`` and ``remedy`` are one line each and safe to show; ``log`` are
    the last lines that a child process wrote."""

    def __init__(
        self, message: str, *, remedy: str | None = None, exit_code: int = FAILED, log: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.log = tuple(log)
        self.exit_code = exit_code


def usage(message: str, *, remedy: str | None = None) -> CliError:
    """A wrong or incomplete command line or environment: exit code 2."""
    return CliError(message, remedy=remedy, exit_code=USAGE)
