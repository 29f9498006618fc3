"""A server on 127.0.0.1 that records requests byte by byte and says what a test tells it to say. Called by tests of
``net.egress``, which want answers that no orderly server gives.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Say = Callable[[asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """``requests`` are whole, with their bodies; ``connections`` counts those accepted; ``names`` are their SNI."""

    def __init__(self, answer: bytes | Say = OK, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.connections = 0
        self.names: list[str | None] = []
        self.asked = asyncio.Event()
        self._tls = tls
        self._open: set[asyncio.Task[None]] = set()
        if tls is not None:
            tls.sni_callback = lambda _socket, name, _context: self.names.append(name)

    @property
    def head(self) -> dict[str, str]:
        """The headers of the one request there was, by name in lower case."""
        (request,) = self.requests
        lines = request.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        pairs = [line.split(": ", 1) for line in lines]
        assert len({name.lower() for name, _ in pairs}) == len(pairs), "a header came twice"
        return {name.lower(): value for name, value in pairs}

    async def up(self, host: str = "127.0.0.1") -> Self:
        self._server = await asyncio.start_server(self._serve, host, 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def down(self) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            while True:
                self.requests.append(await _request(reader))
                self.asked.set()
                if isinstance(self.answer, bytes):
                    writer.write(self.answer)
                    await writer.drain()
                else:
                    await self.answer(writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._open.discard(task)


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)


@asynccontextmanager
async def raw_server(
    answer: bytes | Say = OK, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[RawServer]:
    server = await RawServer(answer, tls).up(host)
    try:
        yield server
    finally:
        await server.down()
