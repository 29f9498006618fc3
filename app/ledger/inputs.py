"""What callers hand to the ledger's writes. JSON travels as text: it is validated and printed once, above."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from app.protocol.states import TaskState


@dataclass(frozen=True, slots=True)
class Keys:
    """Idempotency keys of a message (resume-contract, Duplicates).

    ``message_id`` is None where the agent counts headers only; ``request_hash`` is SHA-256 over the RFC 8785 form of
    the parsed Message.
    """

    message_id: str | None
    header: str | None
    request_hash: bytes


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The agent's settings a task lives under from its submit on, and the sender's options. Durations in seconds."""

    max_attempts: int = 3
    backoff_seconds: float = 2
    max_backoff_seconds: float = 300
    lease_seconds: float = 30
    cancel_grace_seconds: float = 3
    on_busy: str = "enqueue"
    deadline_seconds: float | None = None
    queue_timeout_seconds: float | None = None
    priority: int = 5
    fair_key: str = ""
    delay_seconds: float = 0


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """What a leaseId carries: the right to write this task while the fence holds."""

    tenant: str
    task_id: UUID
    fence: int


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """How many leases of an agent may be held at once, in all and of each tenant; None: no limit."""

    in_all: int | None = None
    per_tenant: int | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The limits of an agent by its settings as they are now."""
        return cls(config.get("maxConcurrency"), config.get("maxConcurrencyPerTenant"))


@dataclass(frozen=True, slots=True)
class NewEvent:
    """One event of a worker's batch.

    ``kind`` is ``status`` (``state``, optional ``message`` and ``metadata`` as JSON text), ``artifact`` (``artifact``
    is the whole artifactUpdate object as JSON text, with ``artifact_id``, ``append`` and ``last_chunk`` of it), or
    ``message`` (a direct reply in ``message``). Messages carry taskId and contextId already; the ledger adds times.
    ``body_hash`` is SHA-256 of the event's canonical form and is compared when ``producer_event_id`` was seen before.
    """

    kind: str
    producer_event_id: str | None = None
    body_hash: bytes | None = None
    state: TaskState | None = None
    message: str | None = None
    metadata: str | None = None
    artifact: str | None = None
    artifact_id: str | None = None
    append: bool = False
    last_chunk: bool = False
