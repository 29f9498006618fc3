"""What can go wrong between a handler, its worker and the broker.

Exception
├── TaskFailed      raised by a handler: the task is FAILED, without another attempt
├── RetryLater      raised by a handler: another attempt, after a delay of the handler's choice
├── BrokerRefused   the broker answered no, and would again: a wrong token, an event that breaks A2A's rules …
└── LeaseLost       another attempt, a cancel or an operator ended the lease; nothing more may be written
BaseException
└── TurnEnded       how ``ctx.complete()`` and its like leave the handler; not to be caught
"""

from collections.abc import Mapping
from typing import Any


class TaskFailed(Exception):
    """Raise it in a handler to end the task as FAILED; ``content`` becomes the status message."""

    def __init__(self, content: Any = None) -> None:
        self.content = content
        super().__init__(str(content))


class RetryLater(Exception):
    """Raise it in a handler for another attempt, at the earliest in ``delay_seconds``; it counts as an attempt."""

    def __init__(self, error: str, *, delay_seconds: float | None = None) -> None:
        self.delay_seconds = delay_seconds
        super().__init__(error)


class BrokerRefused(Exception):
    """The broker's error answer. ``reason`` is its UPPER_SNAKE name, ``metadata`` its ErrorInfo.metadata."""

    def __init__(self, status: int, reason: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        super().__init__(f"{status} {reason}: {message}")


class LeaseLost(Exception):
    """The lease has ended without this worker's doing; ``state`` is the task's state now, where the broker told it."""

    def __init__(self, reason: str, state: str | None = None) -> None:
        self.reason = reason
        self.state = state
        super().__init__(f"{reason} ({state})" if state else reason)


class TurnEnded(BaseException):
    """The turn is over, so nothing after this line runs. ``finally`` blocks and context managers do."""
