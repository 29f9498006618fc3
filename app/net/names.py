"""Host names to addresses, by the system's resolver. Called by ``net.egress``."""

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name, best first, for TCP to a port. Raises OSError when there are none."""

LOOKUPS_AT_ONCE = 16


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve, the system's way."""
    found = await asyncio.get_running_loop().run_in_executor(_threads(), _look_up, host, port)
    return list(dict.fromkeys(found))


def _look_up(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


@functools.cache
def _threads() -> ThreadPoolExecutor:
    # Their own: names served slowly on purpose must hold up nothing but other lookups.
    return ThreadPoolExecutor(LOOKUPS_AT_ONCE, "lookups")
