"""Ending asyncio tasks that run beside others. Used by the heartbeat and the worker."""

import asyncio
from collections.abc import Iterable


async def end(*tasks: "asyncio.Task[object]") -> None:
    """Cancels the tasks and waits until they have ended; what they raise stays in them."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def first_of(*tasks: "asyncio.Task[object]", timeout: float | None = None) -> "set[asyncio.Task[object]]":
    """Waits until one of the tasks is done, at most ``timeout`` seconds; the done ones."""
    done, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    return done


def all_of(tasks: "Iterable[asyncio.Task[None]]") -> "asyncio.Task[object]":
    """A task that is done when all of them are; canceling it does not touch them."""
    return asyncio.create_task(asyncio.wait(list(tasks)))
