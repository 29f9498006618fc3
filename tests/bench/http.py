"""A lean HTTP/1.1 client (one connection, one request at a time), so that the measuring side costs as little as it can.

Used by the load generator and the benchmark's worker.
"""

import asyncio
from typing import cast

import httptools


class Connection(asyncio.Protocol):
    """A kept-alive connection. ``request`` may be called again after its answer has come; never twice at once."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, port: int) -> "Connection":
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    async def request(self, head: bytes, body: bytes) -> tuple[int, bytes]:
        """Sends a request; ``head`` is everything before the Content-Length header. Gives the status and the body.

        Raises ConnectionError when the server closes the connection before the answer is complete.
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("closed before the answer"))

    def on_message_begin(self) -> None:
        self._body.clear()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._parser.get_status_code(), bytes(self._body)))


def request_head(path: str, port: int, token: str, **headers: str) -> bytes:
    """The head of a JSON POST, up to where ``Connection.request`` adds the length. Header names use _ for -."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json",
        f"Authorization: Bearer {token}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n").encode()
