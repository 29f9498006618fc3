"""``grpc.health.v1.Health``: SERVING while the process is ready, as ``/readyz`` says. Open to everybody, like that.

Registered by ``grpc.server``.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

LOOK_SECONDS = 1.0
MAX_WATCHERS = 100
"""Watching needs no token, so it may not take the places of calls (``grpc.server``, CALLS_BESIDE_STREAMS)."""
Response = health_pb2.HealthCheckResponse
Context = grpc.aio.ServicerContext[Any, Any]


class Health(health_pb2_grpc.HealthServicer):
    """``services`` have one status, that of the process: ``problems`` names what keeps it from being ready."""

    def __init__(self, services: Sequence[str], problems: Callable[[], list[str]], drain: asyncio.Event) -> None:
        self._services = {"", *services}
        self._problems = problems
        self._drain = drain
        self._watchers = 0

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> Response:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return Response(status=self._status(request.service))

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        """The status, and each change of it within a second; ends when the process drains."""
        if self._watchers >= MAX_WATCHERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watchers; use Check")
        self._watchers += 1
        try:
            await self._watch(request, context)
        finally:
            self._watchers -= 1

    async def _watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        said = None
        while True:
            if (status := self._status(request.service)) != said:
                await context.write(Response(status=status))
                said = status
            if self._drain.is_set():
                return
            try:
                await asyncio.wait_for(self._drain.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue

    def _status(self, service: str) -> int:
        if service not in self._services:
            return Response.SERVICE_UNKNOWN
        return Response.NOT_SERVING if self._problems() else Response.SERVING
