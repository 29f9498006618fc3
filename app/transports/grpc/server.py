"""Opens the gRPC port and closes it in good order. Made and driven by ``app.main`` where GRPC_PORT is set.

The port is plain HTTP/2: TLS ends at the proxy in front, as for HTTP. The server runs in the process's own event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import grpc.aio
from grpc_health.v1 import health_pb2_grpc

from app.settings import Settings
from app.transports.call_context import MAX_HEADER_BYTES
from app.transports.gateway import Gateway
from app.transports.grpc.health import Health
from app.transports.grpc.service import SERVICE_NAME, A2AService

FLUSH_SECONDS: Final = 1.0
"""What remains of a call when its operation is done: its status, which a client that reads nothing never takes."""
CALLS_BESIDE_STREAMS: Final = 1000
OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # a port that is taken is an error
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", MAX_HEADER_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_HEADER_BYTES),
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none: no bombs, as on the HTTP doors
    ("grpc.max_concurrent_streams", 200),  # per connection
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
    # Pings keep a silent stream's connection alive and find out peers that are gone; clients may ping as well.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)


class GrpcServer:
    """Takes ``port`` when it is made, answers from ``start`` on. Raises OSError for a port that cannot be had."""

    def __init__(self, settings: Settings) -> None:
        self._server = grpc.aio.server(
            options=(*OPTIONS, ("grpc.max_receive_message_length", settings.max_body_bytes)),
            maximum_concurrent_rpcs=settings.max_streams + CALLS_BESIDE_STREAMS,
        )
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.address = f"{host}:{settings.grpc_port or 0}"
        try:
            self.port = self._server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self.address} for gRPC; --grpc-port chooses another") from error
        self.address = f"{host}:{self.port}"
        self._service: A2AService | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self, gateway: Gateway, problems: Callable[[], list[str]]) -> None:
        """Begin to answer; ``problems`` is what keeps the process from being ready, for the health service."""
        self._service = A2AService(gateway)
        self._server.add_generic_rpc_handlers((self._service.handlers(),))
        health = Health([SERVICE_NAME], problems, gateway.operations.drain)
        health_pb2_grpc.add_HealthServicer_to_server(health, self._server)
        await self._server.start()

    def begin_drain(self, grace: float) -> None:
        """No new calls; those under way have ``grace`` seconds. Streams and waits end soon: ``operations.drain``."""
        if self._service is not None and self._stopping is None:
            self._service.begin_drain()
            self._stopping = asyncio.create_task(self._stop(self._service, grace))

    async def stop(self) -> None:
        """Wait until all calls have ended, after ``begin_drain``."""
        if self._stopping is not None:
            await self._stopping

    async def _stop(self, service: A2AService, grace: float) -> None:
        closing = asyncio.create_task(self._server.stop(grace))
        await service.finish(grace)
        await self._server.stop(FLUSH_SECONDS)
        await closing
