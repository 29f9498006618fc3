"""Who is calling: the verified identity every operation receives. Made by ``auth.tokens``, never by a request body."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.protocol.card import Site


@dataclass(frozen=True, slots=True)
class Caller:
    """A verified token's content.

    ``tenant`` owns everything the caller makes; ``agents`` are the agents a worker may lease for (empty for clients);
    ``expires_at`` is POSIX seconds, when streams opened with this token must end.
    """

    tenant: str
    subject: str
    scopes: frozenset[str]
    agents: frozenset[str]
    expires_at: float


async def _never() -> bool:
    return False


def _unknown_site() -> Site:
    raise LookupError("this door does not say where it is")


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call: who calls, and what its headers (or gRPC metadata) say. Made by ``transports.call_context``.

    ``version`` is A2A-Version as sent ("" when absent). ``extensions`` are the A2A extension URIs the client asked for;
    an operation sees those that are active. ``last_event_id`` (header) and ``resume_after`` (query or request metadata)
    are cursors as they were sent. ``body_bytes`` is the size of the body: a large one is worked on beside the event
    loop (``app.offload``). ``gone`` says whether the client has left, so that nobody waits for an answer. ``site`` is
    where this client reaches the service and the agent it calls, which cards say.
    """

    caller: Caller
    version: str = ""
    extensions: frozenset[str] = frozenset()
    idempotency_key: str | None = None
    traceparent: str | None = None
    last_event_id: str | None = None
    resume_after: str | None = None
    body_bytes: int = 0
    gone: Callable[[], Awaitable[bool]] = _never
    site: Callable[[], Site] = _unknown_site
