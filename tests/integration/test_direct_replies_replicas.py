"""Direct replies over two replicas: the sender waits at one, the worker answers through the other, and one dies."""

import asyncio

from tests.contract.doors import Door, Json, say, text
from tests.support.broker import BrokerProcess
from tests.support.tokens import mint
from tests.support.worker import LeaseWorker, direct


async def test_the_message_crosses_replicas_and_outlives_the_one_that_waited(
    broker_pair: tuple[BrokerProcess, BrokerProcess],
) -> None:
    here, there = broker_pair
    here.register_agent("talker", reply="message")
    message = say("ping")
    async with (
        Door("rest", here.base_url, "talker", mint("a")) as door,
        Door("jsonrpc", there.base_url, "talker", mint("a")) as other,
        LeaseWorker(there.base_url, "talker") as worker,
    ):
        blocking = asyncio.create_task(door.call("SendMessage", {"message": message}))
        await worker.write(await worker.lease_one(), direct("pong"))
        assert text((await blocking)["message"]) == "pong"
        streamed = asyncio.create_task(_frames(door))
        await worker.write(await worker.lease_one(), direct("pong pong"))
        assert [text(frame["message"]) for frame in await streamed] == ["pong pong"]
        here.kill()
        again = await other.call("SendMessage", {"message": message})
        assert (text(again["message"]), other.replayed) == ("pong", True)


async def _frames(door: Door) -> list[Json]:
    async with door.open("SendStreamingMessage", {"message": say("again")}) as stream:
        return await stream.rest()
