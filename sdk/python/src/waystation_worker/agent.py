"""What a worker knows of an agent that it works for. Made by ``Worker.agent`` and by the executor adapter."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from waystation_worker.content import Content
from waystation_worker.context import Context

Handler: TypeAlias = Callable[[Context], Coroutine[Any, Any, Content | None]]
"""Works on one turn. What it returns completes the task: nothing, or the content of the final message."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent's handler and how to call it.

    ``concurrency``: leases held at once. ``observe``: signals are left to the handler (``ctx.canceled``) instead of
    canceling it. ``full``: tasks come with their artifacts and whole history. ``cancel``: called after the handler
    was stopped by the signals cancel or interrupt, to say or do something more before the broker hears CANCELED.
    """

    name: str
    handler: Handler
    concurrency: int
    observe: bool = False
    full: bool = False
    cancel: Callable[[Context], Coroutine[Any, Any, None]] | None = None
