"""A caller in front of several replicas who asks one after the other until he is answered: at least once, with the same
ids. Called by the clients of fault tests.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.tokens import bearer

Json = dict[str, Any]
PAUSE_SECONDS = (0.05, 0.3)
ANSWER_SECONDS = 90.0


class Replicas:
    """Use as an async context manager. ``unanswered`` counts the tries that got no answer, ``refusals`` the 503s."""

    def __init__(self, urls: Sequence[str], token: str) -> None:
        headers = bearer(token) | {"A2A-Version": "1.0"}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._clients = [
            httpx.AsyncClient(base_url=url, headers=headers, timeout=60, limits=limits, trust_env=False) for url in urls
        ]
        self._turns = itertools.count()
        self.unanswered = 0
        self.refusals = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(client.aclose() for client in self._clients))

    async def call(self, method: str, path: str, body: Json | None = None) -> httpx.Response:
        """The first answer that is not 503, whichever replica gives it; fails after ANSWER_SECONDS."""
        place = next(self._turns)
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            try:
                answer = await self._clients[place % len(self._clients)].request(method, path, json=body)
            except httpx.TransportError:
                self.unanswered += 1
            else:
                if answer.status_code != 503:
                    return answer
                assert 1 <= int(answer.headers["retry-after"]) <= 5
                self.refusals += 1
            place += 1
            await asyncio.sleep(random.uniform(*PAUSE_SECONDS))
        raise AssertionError(f"{method} {path}: no answer within {ANSWER_SECONDS} s")
