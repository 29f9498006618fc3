"""Sockets to vetted addresses. Called by ``net.connections``."""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final, cast

from app.net.addresses import Address
from app.net.answers import EgressFailed
from app.net.targets import Target

_ATTEMPTS: Final = 4
"""A host may have any number of addresses, of which the first ones are as good as the rest."""
_PAUSE_BYTES: Final = 64 * 1024
READ_BYTES: Final = 16 * 1024
"""At a time: the parser bounds what it waits for the rest of, but not what it has whole."""


class Wire(asyncio.Protocol):
    """What has come from the other side, and whether it has ended. Unlike a stream reader it can be asked, at any time
    and without waiting, whether it is ``is_quiet``.
    """

    def __init__(self) -> None:
        self._received = bytearray()
        self._has_ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()

    @property
    def is_quiet(self) -> bool:
        """Whether it is open and nothing has come that was not read."""
        return not self._received and not self._has_ended

    def write(self, data: bytes) -> None:
        """Send ``data``; what hinders it shows when the answer is read."""
        self._transport.write(data)

    async def read(self) -> bytes:
        """Up to READ_BYTES of what has come, b"" at the end. Waits while there is nothing. Raises OSError if the
        connection broke.
        """
        while self.is_quiet:
            self._news.clear()
            await self._news.wait()
        if not self._received and self._error is not None:
            raise ConnectionError(str(self._error)) from self._error
        data = bytes(self._received[:READ_BYTES])
        del self._received[:READ_BYTES]
        self._transport.resume_reading()
        return data

    def abort(self) -> None:
        """Close at once. Idempotent."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _PAUSE_BYTES:
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> None:
        self._has_ended = True
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended, self._error = True, exc
        self._news.set()


async def connect(
    target: Target, addresses: Sequence[Address], tls: ssl.SSLContext, timeout: float
) -> tuple[Wire, Address]:
    """A connection to one of ``addresses``, and which, within ``timeout`` seconds, TLS and the check of the
    certificate's name included. Nothing is resolved here. Raises EgressFailed.
    """
    loop = asyncio.get_running_loop()
    context, name = (tls, target.host) if target.scheme == "https" else (None, None)
    deadline, failure = loop.time() + timeout, EgressFailed("connect", "no address")
    tried = addresses[:_ATTEMPTS]
    for place, address in enumerate(tried):
        # A silent address, such as one of IPv6 without a route, leaves the others their share of the time.
        share = (deadline - loop.time()) / (len(tried) - place)
        try:
            async with asyncio.timeout(share):
                _, wire = await loop.create_connection(
                    Wire, str(address), target.port, ssl=context, server_hostname=name
                )
            return wire, address
        except OSError as error:
            failure = _failure(error)
    raise failure


def _failure(error: OSError) -> EgressFailed:
    detail = f"{type(error).__name__} {error}".rstrip()
    match error:
        case ssl.SSLError():
            return EgressFailed("tls", detail)
        case TimeoutError():
            return EgressFailed("timeout", detail)
        case _:
            return EgressFailed("connect", detail)
