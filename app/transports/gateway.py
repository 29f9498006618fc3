"""What the doors of one process share. Made once by ``app.main``, handed to every handler as ``call.gateway``."""

from dataclasses import dataclass, field
from typing import Protocol

from app.auth.caller import Caller
from app.operations.deps import Operations
from app.settings import Settings
from app.transports.stream_slots import StreamSlots


class Verifier(Protocol):
    """``auth.tokens.TokenVerifier``: raises Unauthenticated, or Unavailable when keys cannot be fetched."""

    async def verify(self, authorization: str | None) -> Caller: ...


@dataclass
class Gateway:
    """The process's shared parts. Rooms that come later add their fields here.

    When the process is asked to stop, ``app.main`` calls ``operations.begin_drain()``: streams say ``retry:`` and end,
    blocking calls answer with what is there. ``grpc_port`` is the port of the gRPC door (``transports.grpc``
    sets it), None without that door.
    """

    settings: Settings
    verifier: Verifier
    operations: Operations
    grpc_port: int | None = None
    streams: StreamSlots = field(init=False)

    def __post_init__(self) -> None:
        self.streams = StreamSlots(
            total=self.settings.max_streams,
            per_tenant=self.settings.max_streams_per_tenant,
            per_subject=self.settings.max_streams_per_subject,
        )
