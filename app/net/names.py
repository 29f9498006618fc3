"""Host names to addresses, by the system's resolver. Called by ``net.egress``."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name, best first, for TCP to a port. Raises OSError when there are none."""

LOOKUPS_AT_ONCE = 128
"""As many as the webhook sender has places, of which no tenant holds half."""


class Resolver:
    """The system's way. Each has threads of its own: names served slowly on purpose must hold up neither the event loop
    nor another's lookups."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUPS_AT_ONCE, "lookups")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port)
        return list(dict.fromkeys(found))


def _look_up(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
