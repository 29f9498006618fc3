"""HTTP/1.1 connections to vetted addresses, kept open for a moment. Called by ``net.egress``.

A connection belongs to one scheme, host and port and to the address it was opened to. It serves another request only if
the host is the same and that address is among the ones vetted for that request.
"""

import ssl
import time
from collections.abc import Sequence
from typing import Final

import h11

from app.net.addresses import Address
from app.net.answers import Reading
from app.net.targets import Target
from app.net.wire import Wire, connect

KEEP_ALIVE_SECONDS: Final = 3.0
"""Less than the 5 s after which usual servers close an idle connection, so that a request seldom meets its end."""
MAX_IDLE: Final = 32
MAX_HEAD_BYTES: Final = 16 * 1024
"""Of one head or chunk header, and of all that stands beside the body, whatever number of heads and chunks it has."""
MAX_PIECES: Final = 1024
"""Chunks and interim answers in one exchange: a chunk of one byte takes the parser as long as one of kilobytes."""

Origin = tuple[str, str, int]


class Connection:
    """One connection, and at most one exchange at a time on it."""

    def __init__(self, origin: Origin, address: Address, wire: Wire) -> None:
        self.origin = origin
        self.address = address
        self._wire = wire
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._idle_since = 0.0

    async def exchange(self, request: h11.Request, content: bytes, reading: Reading) -> None:
        """Send ``request`` and fill ``reading`` until it is complete or full. Raises OSError, h11.ProtocolError."""
        for event in (request, h11.Data(content), h11.EndOfMessage()):
            self._wire.write(self._http.send(event) or b"")
        budget, pieces = reading.max_bytes + MAX_HEAD_BYTES, MAX_PIECES
        while not reading.is_complete and not reading.is_full:
            match self._http.next_event():
                case h11.NEED_DATA:
                    if budget < 0:
                        raise h11.RemoteProtocolError("more bytes than the answer can need")
                    data = await self._wire.read()
                    budget -= len(data)
                    if not data and not reading.has_head:
                        raise ConnectionError("closed without an answer")
                    self._http.receive_data(data)
                case h11.Response(status_code=status, headers=headers):
                    reading.head(status, headers)
                case h11.Data(data=data) if pieces:
                    reading.body(data)
                    pieces -= 1
                case h11.EndOfMessage():
                    reading.is_complete = True
                case h11.InformationalResponse() if pieces:
                    pieces -= 1
                case other:
                    raise h11.RemoteProtocolError(f"{type(other).__name__} instead of an answer or its end")

    def rest(self) -> bool:
        """After an exchange: whether there can be another. A host that has sent more than it was asked for has spoilt
        the connection: it would be taken for the answer to what is asked next.
        """
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        if self._http.trailing_data != (b"", False):
            return False
        self._http.start_next_cycle()
        self._idle_since = time.monotonic()
        return self.is_fresh

    @property
    def is_fresh(self) -> bool:
        """While idle: whether it is open, undisturbed, and was in use a moment ago."""
        return self._wire.is_quiet and time.monotonic() - self._idle_since < KEEP_ALIVE_SECONDS

    def close(self) -> None:
        """Idempotent."""
        self._wire.abort()


class Connections:
    """The idle ones: at most ``MAX_IDLE``; those idle for ``KEEP_ALIVE_SECONDS`` are closed by the next ``take``."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []

    async def take(
        self, target: Target, addresses: Sequence[Address], tls: ssl.SSLContext, timeout: float
    ) -> Connection:
        """An idle connection to ``target`` at one of ``addresses``, or a fresh one. Raises EgressFailed."""
        origin = (target.scheme, target.host, target.port)
        for connection in self._idle[::-1]:
            if not connection.is_fresh:
                self._idle.remove(connection)
                connection.close()
            elif connection.origin == origin and connection.address in addresses:
                self._idle.remove(connection)
                return connection
        wire, address = await connect(target, addresses, tls, timeout)
        return Connection(origin, address, wire)

    def give_back(self, connection: Connection) -> None:
        """Keep ``connection`` for another exchange, or close it if there can be none."""
        if not connection.rest():
            connection.close()
            return
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE:
            self._idle.pop(0).close()

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()
