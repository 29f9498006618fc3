"""Waiting for what other processes bring about, and looking into a gateway from outside. Called by fault tests."""

import asyncio
import re
from collections.abc import Callable

import httpx

from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint


def gauge(broker: BrokerProcess, name: str) -> int:
    headers = bearer(mint("ops", scope="metrics:read"))
    answer = httpx.get(f"{broker.base_url}/metrics", headers=headers, trust_env=False, timeout=20)
    (value,) = re.findall(rf"^waystation_{name} (\S+)$", answer.text, re.MULTILINE)
    return int(float(value))


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)
