"""A2A's task states, with the numbers of ``a2a.proto``: the one definition, used by the ledger, the doors and the SDKs.

The ledger stores the number, JSON carries the full name (A2A v1.0 §5.5), both are accepted on input (ProtoJSON).
"""

from enum import IntEnum

_PREFIX = "TASK_STATE_"


class TaskState(IntEnum):
    """One of A2A's task states. UNSPECIFIED is proto3's zero: never stored, and as a filter it means "any"."""

    UNSPECIFIED = 0
    SUBMITTED = 1
    WORKING = 2
    COMPLETED = 3
    FAILED = 4
    CANCELED = 5
    INPUT_REQUIRED = 6
    REJECTED = 7
    AUTH_REQUIRED = 8

    @property
    def wire(self) -> str:
        """The full A2A name, ``TASK_STATE_WORKING``."""
        return _PREFIX + self.name

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL

    @classmethod
    def parse(cls, value: object) -> "TaskState":
        """The state of a full name (``"TASK_STATE_WORKING"``) or a number (``2``); ValueError for anything else."""
        if isinstance(value, str) and (state := _BY_WIRE.get(value)) is not None:
            return state
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(value)
        raise ValueError(f"not a task state: {value!r}")


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})

_BY_WIRE = {state.wire: state for state in TaskState}
