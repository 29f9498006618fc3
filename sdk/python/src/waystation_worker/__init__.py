"""Waystation's worker SDK: work on the tasks of a durable A2A broker, from anywhere, and survive anything.

from waystation_worker import Worker

worker = Worker("http://127.0.0.1:8080", token)

@worker.agent("echo")
async def echo(ctx):
    return f"You said: {ctx.text}"

worker.run()
"""

from waystation_worker.agent import Agent, Handler
from waystation_worker.artifact import ArtifactWriter
from waystation_worker.content import Content
from waystation_worker.context import Context
from waystation_worker.errors import BrokerRefused, LeaseLost, RetryLater, TaskFailed, TurnEnded
from waystation_worker.lease import Lease
from waystation_worker.target import load
from waystation_worker.worker import Worker

__all__ = [
    "Agent",
    "ArtifactWriter",
    "BrokerRefused",
    "Content",
    "Context",
    "Handler",
    "Lease",
    "LeaseLost",
    "RetryLater",
    "TaskFailed",
    "TurnEnded",
    "Worker",
    "load",
]
