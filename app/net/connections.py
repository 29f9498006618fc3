"""HTTP connections to vetted addresses, kept open for a moment. Called by ``net.egress``.

A connection belongs to one scheme, host and port and to the address it was opened to. It serves another request only if
the host is the same and that address is among the ones vetted for that request.
"""

import ssl
from collections.abc import Sequence
from typing import Final

import httpcore

from app.net.addresses import Address
from app.net.targets import Target
from app.net.wire import PinnedBackend

KEEP_ALIVE_SECONDS: Final = 3.0
"""Less than the 5 s after which usual servers close an idle connection, so that a request seldom meets its end."""
MAX_IDLE: Final = 32
_HEAD_BYTES: Final = 128 * 1024
"""What an answer may have beside its body; httpcore itself takes heads of up to 100 KiB."""


class Connection:
    """One connection to one of ``addresses``, opened by the first request."""

    def __init__(self, target: Target, addresses: Sequence[Address], tls: ssl.SSLContext) -> None:
        self.origin = httpcore.Origin(target.scheme.encode(), target.host.encode(), target.port)
        self._backend = PinnedBackend(addresses)
        self._http = httpcore.AsyncHTTPConnection(
            self.origin, ssl_context=tls, keepalive_expiry=KEEP_ALIVE_SECONDS, network_backend=self._backend
        )

    @property
    def address(self) -> Address | None:
        """The address it is connected to; None before."""
        return self._backend.address

    @property
    def is_reusable(self) -> bool:
        """Whether it is open, with nothing under way."""
        return self._http.is_idle() and not self._http.is_closed() and not self._http.has_expired()

    async def send(self, request: httpcore.Request, max_bytes: int) -> httpcore.Response:
        """The answer's head; its body must be read to the end, or the connection closed. Raises httpcore's errors."""
        self._backend.grant(max_bytes + _HEAD_BYTES)
        return await self._http.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the socket, also in the middle of a handshake. Idempotent."""
        if self._backend.wire is not None:
            await self._backend.wire.aclose()
        await self._http.aclose()


class Connections:
    """The idle ones: at most ``MAX_IDLE``, each for at most ``KEEP_ALIVE_SECONDS``."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []

    async def take(self, target: Target, addresses: Sequence[Address], tls: ssl.SSLContext) -> Connection:
        """An idle connection to ``target`` at one of ``addresses``, or one that is still to be opened."""
        await self._close_expired()
        origin = httpcore.Origin(target.scheme.encode(), target.host.encode(), target.port)
        for connection in reversed(self._idle):
            if connection.origin == origin and connection.address in addresses:
                self._idle.remove(connection)
                return connection
        return Connection(target, addresses, tls)

    async def give_back(self, connection: Connection) -> None:
        """Keep ``connection`` for another request, or close it if it cannot serve one."""
        if not connection.is_reusable:
            await connection.aclose()
            return
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE:
            await self._idle.pop(0).aclose()

    async def aclose(self) -> None:
        """Close all idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.aclose()

    async def _close_expired(self) -> None:
        expired = [connection for connection in self._idle if not connection.is_reusable]
        self._idle = [connection for connection in self._idle if connection not in expired]
        for connection in expired:
            await connection.aclose()
