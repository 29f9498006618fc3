"""HTTP on a bare socket, for tests that need the exact bytes or the exact moment. Called by tests/integration."""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class RawStream:
    """One GET or POST whose chunked answer is read as bytes. Use as an async context manager."""

    def __init__(self, base_url: str, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> None:
        address = urlsplit(base_url)
        self._host, self._port = address.hostname or "", address.port or 80
        lines = [f"{method} {path} HTTP/1.1", f"Host: {address.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self._request = "\r\n".join([*lines, "", ""]).encode() + body
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        self._writer.write(self._request)
        await self._writer.drain()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def head(self) -> None:
        """Read the status line and the headers."""
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}

    async def until(self, needle: bytes, seconds: float = 10) -> bytes:
        """The body from where it was left off up to ``needle``, which must come."""
        async with asyncio.timeout(seconds):
            while needle not in self.body:
                assert await self._chunk(), f"ended without {needle!r}: {self.body!r}"
        found, _, self.body = self.body.partition(needle)
        return found + needle

    async def rest(self, seconds: float = 10) -> bytes:
        """Everything up to the end of the answer."""
        async with asyncio.timeout(seconds):
            while await self._chunk():
                pass
        found, self.body = self.body, b""
        return found

    async def _chunk(self) -> bool:
        if self.ended:
            return False
        size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
        self.body += await self._reader.readexactly(size)
        await self._reader.readexactly(2)
        self.ended = size == 0
        return not self.ended

    def reset(self) -> None:
        """Cut the connection with an RST."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
