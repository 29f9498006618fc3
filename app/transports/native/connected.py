"""Waiting only as long as the client does. Used by the long polls of ``native.workers``."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T], *, undo: Callable[[T], None]) -> T:
    """The result of ``work``, which is cancelled when the client goes away; call it after the body was read.

    ``undo`` receives a result that came too late, so that nothing is granted to nobody. Raises ClientDisconnect then.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not gone.done():
            return task.result()
        if task.done() and not task.cancelled() and task.exception() is None:
            undo(task.result())
        raise ClientDisconnect
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
