"""The process's log: one JSON object (or one plain line) per record on stderr, with secrets and query strings removed.

Configured once by ``app.main.serve``.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

_SECRETS: Final = (
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]+", re.IGNORECASE), r"\1 ***"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), "***"),  # a JWT wherever it stands
    (re.compile(r"\bwst_\w+"), "***"),
    (re.compile(r"(\w://[^\s:/@]*):[^\s@/]*@"), r"\1:***@"),
    (re.compile(r"((?:\w://|\s/|^/)[^\s?\"']*)\?[^\s\"']*"), r"\1?***"),
)
_QUIET: Final = ("httpx", "httpcore", "asyncio", "alembic", "uvicorn.access")


def redact(text: str) -> str:
    """``text`` without tokens, passwords in URLs and query strings."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class JsonFormatter(logging.Formatter):
    """``time`` (UTC), ``level``, ``logger``, ``message``, ``exception``, and the record's ``extra["fields"]``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """The same for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def configure_logging(level: str, style: str) -> None:
    """Send everything to stderr. ``style`` is ``json`` or ``text``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
