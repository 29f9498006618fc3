"""The demo's agent: counts aloud, slowly enough to be interrupted. Loaded by ``waystation worker run``."""

import asyncio
import os
import re

from waystation_worker import Context, Worker

AGENT = os.environ.get("WAYSTATION_DEMO_AGENT", "demo")
LEASE_SECONDS = 2
"""Short, so that the audience need not wait long for a dead worker's lease."""
PACE_SECONDS = 0.2
MOST = 100

worker = Worker(lease_seconds=LEASE_SECONDS)


@worker.agent(AGENT)
async def count(ctx: Context) -> str:
    """Counts from 1 to the number in the message, one artifact chunk each."""
    number = re.search(r"\d+", ctx.text)
    end = min(int(number[0]), MOST) if number else 3
    await ctx.progress(f"counting to {end}")
    async with ctx.artifact("numbers") as numbers:
        for value in range(1, end + 1):
            await asyncio.sleep(PACE_SECONDS)
            await numbers.write(str(value) if value == 1 else f" {value}", last=value == end)
    return f"counted to {end}"
