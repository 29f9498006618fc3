"""Host names to addresses, by the system's resolver. Called by ``net.egress``."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name, best first, for TCP to a port. Raises OSError when there are none."""

LOOKUPS_AT_ONCE = 128
"""As many as the webhook sender has places, of which no tenant holds half."""


class Resolver:
    """The system's way. Each has threads of its own: names served slowly on purpose must hold up neither the event loop
    nor another's lookups, nor the end of the process, which waits for every thread of an executor.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def ended(addresses: list[str] | OSError | UnicodeError) -> None:
            self._places.release()  # a lookup that nobody waits for any more has its place for as long as it takes
            if found.done():
                return
            if isinstance(addresses, list):
                found.set_result(addresses)
            else:
                found.set_exception(addresses)

        def look_up() -> None:
            addresses = _look_up(host, port)
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(ended, addresses)

        try:
            threading.Thread(target=look_up, name=f"lookup:{host}", daemon=True).start()
        except RuntimeError as error:
            self._places.release()
            raise OSError("no thread for a lookup") from error
        return await found


def _look_up(host: str, port: int) -> list[str] | OSError | UnicodeError:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))
