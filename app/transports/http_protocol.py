"""Limits below ASGI, where uvicorn has none: how long and how large a request's head may be, connections per address.

Used by ``app.main.serve`` as uvicorn's protocol class (security.md, Input limits).
"""

import asyncio
import ipaddress
from collections import Counter
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.transports.http_parser import PlainParser

HEAD_SECONDS: Final = 10.0
MAX_HEAD_BYTES: Final = 32 * 1024
"""While it is still arriving; a complete head is judged at 16 KiB, with a proper answer (``call_context``)."""
MAX_PER_ADDRESS: Final = 200
LINGER_SECONDS: Final = 10.0
"""How long the rest of a request is read whose answer has been given."""

STALL_SECONDS: Final = 20.0
"""A peer that takes nothing of its answer for so long is cut off: answers are memory. ``sse`` is stricter."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s"
)
_BODY = (
    b'{"error":{"code":431,"status":"RESOURCE_EXHAUSTED","message":"Request headers too large","details":[{"@type":'
    b'"type.googleapis.com/google.rpc.ErrorInfo","reason":"HEADERS_TOO_LARGE","domain":"waystation","metadata":{}}]}}'
)


class AddressLimit:
    """Counts connections per address. Loopback and trusted proxies, behind which many stand, are not limited."""

    def __init__(self, trusted_proxies: list[str], most: int = MAX_PER_ADDRESS) -> None:
        self._trusted = [ipaddress.ip_network(entry, strict=False) for entry in trusted_proxies]
        self._most = most
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count one more; False when it is one too many and must be refused (it is not counted then)."""
        if self._open[address] >= self._most and not self._is_exempt(address):
            return False
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]

    def _is_exempt(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return True  # a local socket
        return peer.is_loopback or any(peer in network for network in self._trusted)


class GuardedHttp(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol, whose requests' heads must be complete in time and in size.

    What is refused early is still read for a while, for a connection closed under a sending client loses the answer
    (RFC 9112 §9.6).
    """

    def __init__(self, *, limit: AddressLimit, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.parser = PlainParser(self)  # pyright: ignore[reportAttributeAccessIssue]
        self._limit = limit
        self._address: str | None = None
        self._head_bytes: int | None = None
        self._body_open = False
        self._close_after_body = False
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if self._limit.enter(address):
            self._address = address
            self._begin_head()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        self._forget_stall()
        if self._address is not None:
            self._limit.leave(self._address)
            self._address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._refuse()

    def on_message_begin(self) -> None:
        self._begin_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.parser.is_asking:
            return
        self._head_bytes = None
        self._body_open = True
        self._set_timer(None)
        super().on_headers_complete()
        if not self.cycle.keep_alive:
            self.cycle.transport = _PoliteTransport(self)  # pyright: ignore[reportAttributeAccessIssue]

    def on_message_complete(self) -> None:
        if self.parser.is_asking:
            return
        self._body_open = False
        self._set_timer(None)
        super().on_message_complete()
        if self._close_after_body:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._body_open:
            self._set_timer(LINGER_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        self._forget_stall()
        super().resume_writing()

    def close_politely(self) -> None:
        """Close; but while the client still sends say only that no more comes, and read on."""
        if not self._body_open or self.transport.is_closing() or not self.transport.can_write_eof():
            self.transport.close()
        elif not self._close_after_body:
            self._close_after_body = True
            self.transport.write_eof()

    def _begin_head(self) -> None:
        self._head_bytes = 0
        self._set_timer(HEAD_SECONDS)

    def _refuse(self) -> None:
        self._refused = True
        self.transport.write(_TOO_LARGE % (len(_BODY), _BODY))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_timer(LINGER_SECONDS)

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._time_over)

    def _watch_stall(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self._judge_stall, waiting)

    def _judge_stall(self, waiting: int) -> None:
        if self.transport.get_write_buffer_size() >= waiting:
            self.transport.abort()
        else:
            self._watch_stall()

    def _forget_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _time_over(self) -> None:
        self.transport.abort()


class _PoliteTransport:
    """What the answer to a ``Connection: close`` request needs of its transport."""

    def __init__(self, protocol: GuardedHttp) -> None:
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        self._protocol.transport.write(data)

    def is_closing(self) -> bool:
        return self._protocol.transport.is_closing()

    def close(self) -> None:
        self._protocol.close_politely()
