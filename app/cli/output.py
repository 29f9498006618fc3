"""How commands print: tables for people, JSON and NDJSON for programs. Data goes to stdout, everything else to stderr.

Nothing here interprets markup, so that text of a task cannot restyle or forge a line; control characters are escaped.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

JsonObject: TypeAlias = dict[str, Any]


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"


@dataclass(frozen=True, slots=True)
class Column:
    """A table column: its heading and the text of a row."""

    heading: str
    cell: Callable[[JsonObject], object]


def console() -> Console:
    """stdout for people: as wide as the terminal, unlimited when it is a pipe or a file."""
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 200)


def note(text: str) -> None:
    """A remark beside the data, on stderr."""
    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(printable(text), style="dim")


def printable(value: object) -> str:
    """One line of text without control characters: a terminal shows it, and nothing more."""
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shorten(text: str, width: int = 72) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_ndjson(values: Iterable[object]) -> None:
    for value in values:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def print_rows(rows: Sequence[JsonObject], columns: Sequence[Column], output: OutputFormat, *, empty: str) -> None:
    """A list in the chosen format; ``empty`` is said on stderr when a table would have no rows."""
    if output is OutputFormat.JSON:
        print_json(list(rows))
    elif output is OutputFormat.NDJSON:
        print_ndjson(rows)
    elif not rows:
        note(empty)
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(column.heading, overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(column.cell(row))) for column in columns))
        console().print(table)


def print_fields(value: JsonObject, fields: Sequence[tuple[str, object]], output: OutputFormat) -> None:
    """One thing: its JSON, or ``fields`` as name and text, one a line; those that are None are left out."""
    if output is OutputFormat.JSON:
        print_json(value)
    elif output is OutputFormat.NDJSON:
        print_ndjson([value])
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in fields:
            if text is not None:
                table.add_row(name, Text(printable(text)))
        console().print(table)
