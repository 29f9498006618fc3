"""Orderly ends: SIGTERM unwinds a command as Ctrl-C does, and what must be stopped is stopped whatever else arrives."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any


async def stopped_by_sigterm(work: Coroutine[Any, Any, int]) -> int:
    """Run ``work``; a SIGTERM cancels it, so that its context managers close, and the exit code is then 0."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise  # Ctrl-C: asyncio.run cancels this task, and wants to see it canceled
        return 0


async def finish(cleanup: Coroutine[Any, Any, object]) -> None:
    """Run ``cleanup`` to its end although this task is being canceled, also when it is canceled again meanwhile."""
    task = asyncio.ensure_future(cleanup)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
