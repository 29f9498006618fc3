"""The broker's own sending options, ``SendMessageRequest.metadata["waystation"]`` (native-api.md)."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from app.errors import InvalidParams, NotSupported
from app.ledger.inputs import TaskSettings
from app.ledger.rows import Agent
from app.operations.agent_config import task_settings
from app.protocol.models import parse_timestamp

KEY = "waystation"
MAX_FAIR_KEY_CHARACTERS = 256
MAX_SECONDS = 400 * 24 * 3600
"""Nothing is kept longer than its events: at most 400 days (ledger.md)."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SendingOptions:
    """None: not given. ``run_at`` is POSIX seconds."""

    priority: int | None = None
    run_at: float | None = None
    deadline_seconds: float | None = None
    fair_key: str | None = None
    on_busy: str | None = None

    def for_new_task(self, agent: Agent) -> TaskSettings:
        """The agent's settings with the sender's options: what a new task lives under."""
        settings = task_settings(agent)
        return replace(
            settings,
            deadline_seconds=self.deadline_seconds or settings.deadline_seconds,
            priority=settings.priority if self.priority is None else self.priority,
            fair_key=self.fair_key or settings.fair_key,
            delay_seconds=0 if self.run_at is None else max(0.0, self.run_at - time.time()),
        )

    def refuse_on_follow_up(self) -> None:
        """Raise NotSupported for options that a task has from its first message on."""
        given = {
            "priority": self.priority,
            "runAt": self.run_at,
            "deadlineSeconds": self.deadline_seconds,
            "fairKey": self.fair_key,
        }
        for name, value in given.items():
            if value is not None:
                raise _unsupported(name, "is set by a task's first message only")


def parse_options(metadata: Mapping[str, Any] | None) -> SendingOptions:
    """The options of a request's metadata. Raises InvalidParams for wrong values, NotSupported for ``interrupt``."""
    raw: object = (metadata or {}).get(KEY)
    if raw is None:
        return SendingOptions()
    if not isinstance(raw, dict):
        raise _invalid("", "must be an object")
    options = cast("dict[str, object]", raw)
    return SendingOptions(
        priority=_read(options, "priority", _priority),
        run_at=_read(options, "runAt", _run_at),
        deadline_seconds=_read(options, "deadlineSeconds", _seconds),
        fair_key=_read(options, "fairKey", _fair_key),
        on_busy=_read(options, "onBusy", _on_busy),
    )


def _read(options: dict[str, object], name: str, parse: Callable[[object], _T]) -> _T | None:
    value = options.get(name)
    if value is None:
        return None
    try:
        return parse(value)
    except ValueError as error:
        raise _invalid(name, str(error)) from None


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 9 or value != int(value):
        raise ValueError("must be an integer from 0 to 9")
    return int(value)


def _run_at(value: object) -> float:
    seconds = parse_timestamp(value).timestamp()
    if seconds > time.time() + MAX_SECONDS:
        raise ValueError("must lie within the next 400 days")
    return seconds


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("must be a number of seconds")
    if not 0 < value <= MAX_SECONDS:
        raise ValueError(f"must be above 0 and at most {MAX_SECONDS}")
    return float(value)


def _fair_key(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_FAIR_KEY_CHARACTERS:
        raise ValueError(f"must be a string of at most {MAX_FAIR_KEY_CHARACTERS} characters")
    return value


def _on_busy(value: object) -> str:
    if value == "interrupt":
        raise _unsupported("onBusy", "interrupt is not built yet")
    if value not in ("enqueue", "reject"):
        raise ValueError("must be enqueue or reject")
    return str(value)


def _path(name: str) -> str:
    return f"metadata.{KEY}.{name}" if name else f"metadata.{KEY}"


def _invalid(name: str, text: str) -> InvalidParams:
    return InvalidParams(f"{_path(name)}: {text}", violations=[(_path(name), text)])


def _unsupported(name: str, text: str) -> NotSupported:
    return NotSupported(f"{_path(name)}: {text}", violations=[(_path(name), text)])
