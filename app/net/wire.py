"""Sockets to vetted addresses: what ``net.connections`` puts under httpcore."""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import httpcore

from app.net.addresses import Address

# A host may have any number of addresses, of which the first ones are as good as the rest.
_ATTEMPTS: Final = 4


class Wire(httpcore.AsyncNetworkStream):
    """A stream that gives up after so many bytes: what a peer sends beside a short answer (chunk extensions, trailers,
    any number of 1xx answers) would otherwise be parsed for as long as the time limit allows.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream, budget: int) -> None:
        self._stream = stream
        self.budget = budget
        """Bytes that may still be read."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(max_bytes, timeout)
        self.budget -= len(data)
        if self.budget < 0:
            raise httpcore.RemoteProtocolError("more bytes than the answer can need")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        # The connection keeps this object, so that it is closed even when the handshake is cancelled.
        self._stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects to one of ``addresses``, in their order, whatever host httpcore names: nothing is resolved here."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses[:_ATTEMPTS]
        self._sockets = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())
        self.address: Address | None = None
        """The one that is connected."""
        self.wire: Wire | None = None
        self._budget = 0

    def grant(self, budget: int) -> None:
        """Let ``budget`` bytes be read in the exchange that begins."""
        self._budget = budget
        if self.wire is not None:
            self.wire.budget = budget

    async def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - httpcore's signature
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> Wire:
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        for attempt, address in enumerate(self._addresses, 1):
            # A silent address, such as one of IPv6 without a route, leaves the others their share of the time.
            left = None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())
            share = None if left is None else left / (len(self._addresses) - attempt + 1)
            try:
                stream = await self._sockets.connect_tcp(str(address), port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if attempt == len(self._addresses):
                    raise
            else:
                self.address, self.wire = address, Wire(stream, self._budget)
                return self.wire
        raise httpcore.ConnectError("no address")
