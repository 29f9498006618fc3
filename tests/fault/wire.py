"""An event stream on a bare socket that is read byte by byte and cut anywhere: within the head or a frame, with FIN or
RST. Called by the readers of fault tests.
"""

import asyncio
import socket
import struct
from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

from tests.fault.history import Frame

LOST = (OSError, asyncio.IncompleteReadError)
"""What reading raises when the other side has died."""


class Connection:
    """One request and as much of its answer as was read. Use as an async context manager, which cuts what is open."""

    def __init__(self, base_url: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> None:
        address = urlsplit(base_url)
        self._host, self._port = address.hostname or "", address.port or 80
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {address.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.request = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
        self.status = 0
        self.body = b""
        self.ended = False
        """The server has said that the answer is complete."""
        self._left = 0
        self.receive_buffer: int | None = None
        """Bytes that the kernel may keep for a reader that takes nothing; None: as many as it likes."""

    async def __aenter__(self) -> Self:
        sock = socket.socket()
        sock.setblocking(False)
        if self.receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (self._host, self._port))
        except BaseException:
            sock.close()
            raise
        self._reader, self._writer = await asyncio.open_connection(sock=sock)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()
        await asyncio.sleep(0)  # the transport closes its socket in the loop's next round

    async def send(self, size: int | None = None) -> None:
        """Send the request, or only its first ``size`` bytes."""
        self._writer.write(self.request[:size])
        await self._writer.drain()

    async def head(self) -> None:
        """Read the status line and the headers. Raises LOST."""
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(status.split()[1])
        names = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
        if "transfer-encoding" not in names:
            self.body = await self._reader.readexactly(int(names.get("content-length", 0)))
            self.ended = True

    async def read(self, size: int) -> None:
        """Read on until ``size`` bytes of the body are there, or it is complete. Raises LOST, keeping what came."""
        while not self.ended and len(self.body) < size:
            if not self._left:
                self._left = int(await self._reader.readuntil(b"\r\n"), 16)
                if not self._left:
                    await self._reader.readexactly(2)
                    self.ended = True
                    return
            data = await self._reader.read(min(self._left, size - len(self.body)))
            if not data:
                raise ConnectionResetError("the stream was cut by the other side")
            self.body += data
            self._left -= len(data)
            if not self._left:
                await self._reader.readexactly(2)

    async def until(self, found: bytes) -> None:
        """Read on until the body has ``found``. Raises LOST; EOFError when it ends without."""
        while found not in self.body:
            if self.ended:
                raise EOFError(f"no {found!r} in {self.body!r}")
            await self.read(len(self.body) + 1)

    async def rest(self) -> None:
        """Read everything that is still to come. Raises LOST."""
        while not self.ended:
            await self.read(len(self.body) + 65536)

    def reset(self) -> None:
        """Cut the connection with an RST; leaving the context afterwards is fine."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def frames(self) -> list[Frame]:
        """The whole events so far; the seq of one without an id is 0. Of a frame that was cut nothing counts."""
        return frames_of(self.body)


def frames_of(body: bytes) -> list[Frame]:
    """The events of a stream's bytes, as a plain parser of LF lines sees them."""
    frames: list[Frame] = []
    for block in body.split(b"\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
        incarnation, _, seq = fields.get("id", "1.0").partition(".")
        assert incarnation == "1", fields
        frames.append(Frame(int(seq), fields.get("event", ""), fields["data"]))
    return frames
