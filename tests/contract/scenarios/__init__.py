"""The contract as a table: each row is one thing that every door must mean alike.

A row says what is given, which operation is called with what, and what that means: words of ``tests.contract.meaning``,
or the reason of an error. ``test_scenarios.py`` runs each row through every door; ``test_cells.py`` fails when an
operation and a reason that can meet have no row.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.contract.doors import Json
from tests.contract.scenarios.worlds import World, idle, nothing

Params = Callable[[World], Json]
Deed = Callable[[World], Awaitable[None]]


def empty(_: World) -> Json:
    return {}


@dataclass(frozen=True)
class Scenario:
    """One row. ``means``: the answer's words, or an error's reason.

    ``meanwhile`` is done while the call waits for its answer, or a stream stays open. ``headers`` are sent as headers
    or gRPC metadata (``_`` for ``-``); ``claims`` are of the caller's token.
    """

    name: str
    operation: str
    means: tuple[str, ...] | str
    given: Callable[[Any], Awaitable[World]] = nothing
    params: Params = empty
    meanwhile: Deed = idle
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def reason(self) -> str | None:
        """The error's reason, if one is expected."""
        return self.means if isinstance(self.means, str) else None
