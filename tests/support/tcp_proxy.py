"""A TCP proxy that stops passing bytes on while its connections stay open, or cuts them. Called by tests of outages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class TcpProxy:
    """Between a client and ``target`` (host, port). ``hold`` blackholes connections that exist; new ones pass."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._pairs: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self.port = 0
        self.accepting = True

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def hold(self) -> None:
        """Nothing passes any more on the connections there are, and nobody is told."""
        self._passing = _replaced(self._passing)

    def refuse(self) -> None:
        """Cut all connections, and each new one at once."""
        self.accepting = False
        self.cut()

    def accept(self) -> None:
        self.accepting = True

    def cut(self) -> None:
        for pair in self._pairs:
            pair.cancel()

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        passing = self._passing
        try:
            if self.accepting:
                far_reader, far_writer = await asyncio.open_connection(*self._target)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(_pump(reader, far_writer, passing))
                        group.create_task(_pump(far_reader, writer, passing))
                finally:
                    far_writer.transport.abort()
        except (asyncio.CancelledError, OSError, ExceptionGroup):
            pass
        finally:
            writer.transport.abort()
            self._pairs.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event) -> None:
    while data := await reader.read(65536):
        await passing.wait()
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError


def _replaced(passing: asyncio.Event) -> asyncio.Event:
    passing.clear()
    fresh = asyncio.Event()
    fresh.set()
    return fresh


@asynccontextmanager
async def proxied(dsn: str) -> AsyncIterator[tuple[TcpProxy, str]]:
    """A proxy in front of a database, and the DSN that leads through it."""
    parts = urlsplit(dsn)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = TcpProxy((parts.hostname, parts.port))
    await proxy.start()
    credentials = parts.netloc.rpartition("@")[0]
    try:
        yield proxy, parts._replace(netloc=f"{credentials}@127.0.0.1:{proxy.port}").geturl()
    finally:
        with suppress(OSError):
            await proxy.stop()
