"""A pooled connection whose end the server has announced but not yet carried out: that moment, held by a proxy."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.errors import Unavailable
from app.ledger.pool import Database


@asynccontextmanager
async def holding_ends(dsn: str) -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """The URL of a proxy that passes on that a connection has ended only while the event is set."""
    parts = urlsplit(dsn)
    ends = asyncio.Event()
    ends.set()
    passing: list[asyncio.Task[None]] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        await ends.wait()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(parts.hostname, parts.port)
        passing.append(asyncio.create_task(pass_on(reader, far_writer)))
        passing.append(asyncio.create_task(pass_on(far_reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{address}").geturl(), ends
    server.close()
    await asyncio.wait_for(asyncio.gather(*passing, return_exceptions=True), 5)


async def test_a_connection_that_is_about_to_end_is_an_outage_once(database_url: str) -> None:
    """As when PostgreSQL is killed: its backends say so, and a query that comes just then must not be a 500."""
    async with holding_ends(database_url) as (url, ends):
        db = await Database.connect(url, size=1)
        (row,) = await db.fetch("SELECT pg_backend_pid() AS pid")
        ends.clear()
        admin = await asyncpg.connect(database_url)
        assert await admin.fetchval("SELECT pg_terminate_backend($1, 5000)", row["pid"])
        await admin.close()
        with pytest.raises(Unavailable) as caught:
            await db.fetch("SELECT 1")
        assert isinstance(caught.value.__cause__, asyncpg.InternalClientError)
        assert await db.ping() < 5, "the pool has made another connection"
        ends.set()
        await db.close()
