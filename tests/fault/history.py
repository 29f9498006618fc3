"""What the actors of a fault test did and were told, in a form that the checker (check.py) judges afterwards.

Written by clients and readers in the test's own process and by worker processes that may be killed at any moment, so
operations are kept as lines of a file, one when an operation begins and one when it ends. Times are seconds of the one
wall clock that all processes and the database of a test share. Standard library only: worker processes start fast.
"""

import itertools
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

Json = dict[str, Any]
OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"
NEVER = 1e12
"""When an operation ended that was never answered."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of one actor, however often it had to be sent: what was asked and what was told in the end.

    ``kind`` is send, get, cancel, claim, write, heartbeat, retry or release. ``seq`` is the task's last seq as the
    answer told it, ``state`` without its prefix.
    """

    actor: str
    kind: str
    start: float
    end: float = NEVER
    outcome: str = UNKNOWN
    task: str = ""
    key: str = ""
    """send: the messageId."""
    fence: int = 0
    turn: int = 0
    attempt: int = 0
    marks: tuple[str, ...] = ()
    """write: what the batch's events carry, each mark once in all the world."""
    seqs: tuple[int, ...] = ()
    seq: int | None = None
    state: str = ""
    reason: str = ""
    terminal_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One event as a stream gave it; ``data`` are the exact bytes as text."""

    seq: int
    event: str
    data: str


@dataclass(frozen=True, slots=True)
class Read:
    """One connection of a reader: the cursor it came with and the whole frames it got. ``closed``: the server said
    that this was all."""

    reader: str
    task: str
    cursor: int
    frames: tuple[Frame, ...]
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Hook:
    """A push notification config: it hears of every event of its task after the seq ``after``."""

    task: str
    config: str
    after: int


@dataclass(frozen=True, slots=True)
class Notified:
    """One request that its receiver got, in the order in which they came. ``ok``: it was answered 2xx."""

    task: str
    config: str
    seq: int
    ok: bool
    body: str


@dataclass
class History:
    """Everything. ``logs`` are the ledger's own word at the end, task by task."""

    ops: list[Op] = field(default_factory=list[Op])
    reads: list[Read] = field(default_factory=list[Read])
    hooks: list[Hook] = field(default_factory=list[Hook])
    notified: list[Notified] = field(default_factory=list[Notified])
    logs: dict[str, list[Frame]] = field(default_factory=dict[str, list[Frame]])
    cancel_seconds: float = 10
    """Within which a requested cancel must have ended its task."""
    lease_seconds: float = 30
    expiry_slack: float = 10
    """How much later than after twice its length a forgotten lease may end: gateways that are down reap nothing."""

    def copy(self) -> "History":
        """One that can be changed."""
        logs = {task: list(log) for task, log in self.logs.items()}
        return replace(self, ops=list(self.ops), reads=list(self.reads), notified=list(self.notified), logs=logs)


class Recorder:
    """Appends to a file, from one process. What was begun and never ended reads as unknown."""

    def __init__(self, path: Path, actor: str) -> None:
        self.actor = actor
        self._numbers = itertools.count()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, kind: str, **fields: Any) -> tuple[int, Op]:
        """An operation is about to be sent."""
        op = Op(self.actor, kind, time.time(), **fields)
        number = next(self._numbers)
        self._write(number, op)
        return number, op

    def end(self, begun: tuple[int, Op], outcome: str, **fields: Any) -> Op:
        """It was answered."""
        number, op = begun
        op = replace(op, end=time.time(), outcome=outcome, **fields)
        self._write(number, op)
        return op

    def close(self) -> None:
        os.close(self._file)

    def _write(self, number: int, op: Op) -> None:
        os.write(self._file, json.dumps([number, asdict(op)]).encode() + b"\n")


def load(paths: Iterable[Path]) -> list[Op]:
    """The operations of these files, each as it stood at last. A last line without its end was being written when its
    writer was killed."""
    ops: list[Op] = []
    for path in paths:
        found: dict[int, Op] = {}
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                number, fields = json.loads(line)
                found[number] = Op(**fields | {"marks": tuple(fields["marks"]), "seqs": tuple(fields["seqs"])})
        ops += found.values()
    return ops
