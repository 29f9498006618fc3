"""Keeps the event loop free of what takes long: a large body is read, checked and hashed in a thread of its own.

A body of 4 MiB that is all numbers or empty lists takes seconds, in which no heartbeat, stream or probe would be
answered. Called by the doors, the operations and the executor side.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

LARGE_BYTES: Final = 64 * 1024
_thread: Final = ThreadPoolExecutor(1, "large-bodies")  # one: the large wait for each other, and the small for none

_T = TypeVar("_T")


async def run(size: int, work: Callable[[], _T]) -> _T:
    """What ``work`` returns or raises; ``size`` is of the body it works on, in bytes. It must not touch the loop."""
    if size < LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
