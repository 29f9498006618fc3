"""What scenarios begin with (``given``), and what happens while their call is open (``meanwhile``).

Made through the REST door and the workers' API, whichever door the scenario is tried at.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.contract.conftest import Agent
from tests.contract.doors import Json, say
from tests.support.broker import card
from tests.support.worker import LeaseWorker, artifact, direct, status

UNKNOWN = "01900000-0000-7000-8000-000000000000"
HOOK = "https://127.0.0.1:1/hook"
"""Where nobody listens; the broker of these tests lets push configs name it."""
EXTENSION = "https://example.org/ext/needed"


@dataclass
class World:
    """The agent, and the ids that a scenario's parameters are made of."""

    agent: Agent
    task_id: str = UNKNOWN
    context_id: str = ""
    message: Json = field(default_factory=lambda: say("go"))
    lease: Json = field(default_factory=dict[str, object])
    token: str = ""
    config_id: str = "1"
    agent_id: str = ""
    """Whose door is used, if not the agent's."""

    async def worker(self) -> LeaseWorker:
        """A worker that is closed with the agent."""
        worker = self.agent.worker()
        self.agent.exits.push_async_callback(worker.http.aclose)
        return worker

    async def lease_and_write(self, *events: Json) -> None:
        worker = await self.worker()
        self.lease = await worker.lease_one()
        if events:
            await worker.write(self.lease, *events)


# given ---------------------------------------------------------------------------------------------------------------


async def nothing(agent: Agent) -> World:
    return World(agent)


async def submitted(agent: Agent) -> World:
    """A task that waits for a worker."""
    world = World(agent)
    await _send(world)
    return world


async def _send(world: World, tenant: str = "a", **options: Any) -> None:
    task = await world.agent.door(tenant, name="rest").send(world.message, now=True, **options)
    world.task_id, world.context_id = task["id"], task["contextId"]


async def _after(agent: Agent, *events: Json) -> World:
    world = await submitted(agent)
    await world.lease_and_write(*events)
    return world


async def working(agent: Agent) -> World:
    """A task that a worker holds; it has begun an artifact. A cancel waits no longer than half a second."""
    agent.register(cancelGraceSeconds=0.5)
    return await _after(agent, artifact("stock", "A:"))


async def completed(agent: Agent) -> World:
    done = status("COMPLETED", "done")
    return await _after(agent, artifact("stock", "A:"), artifact("stock", "3", append=True, last=True), done)


async def failed(agent: Agent) -> World:
    return await _after(agent, status("FAILED", "no stock"))


async def rejected(agent: Agent) -> World:
    return await _after(agent, status("REJECTED", "not mine"))


async def input_required(agent: Agent) -> World:
    return await _after(agent, status("INPUT_REQUIRED", "which one?"))


async def auth_required(agent: Agent) -> World:
    return await _after(agent, status("AUTH_REQUIRED", "sign in"))


async def canceled(agent: Agent) -> World:
    world = await submitted(agent)
    await agent.door(name="rest").cancel(world.task_id)
    return world


async def of_another_tenant(agent: Agent) -> World:
    """A task that tenant b has sent to the same agent."""
    agent.register(visibility="shared", sharedWith=["*"])
    world = World(agent)
    await _send(world, "b")
    return world


async def of_another_agent(agent: Agent) -> World:
    """The caller's own task, but another agent's; that one's door is used."""
    world = await submitted(agent)
    other = Agent(agent.broker, agent.door_name)
    other.register()
    world.agent_id = other.id
    return world


async def at_an_unknown_agent(agent: Agent) -> World:
    world = await submitted(agent)
    world.agent_id = "nobody"
    return world


async def at_a_private_agent_of_another_tenant(agent: Agent) -> World:
    return await submitted(agent)


async def three_tasks(agent: Agent) -> World:
    """One canceled, then two submitted, in contexts of their own; and the token of the first page of two."""
    door = agent.door(name="rest")
    first = await door.send(say("1", contextId="c1"), now=True)
    for number in ("2", "3"):
        await door.send(say(number, contextId=f"c{number}"), now=True)
    await door.cancel(first["id"])
    return World(agent, task_id=first["id"], context_id="c1", token=(await door.list(pageSize=2))["nextPageToken"])


async def talker(agent: Agent) -> World:
    """An agent that answers with messages."""
    agent.register(reply="message")
    return World(agent)


async def taking_everything(agent: Agent) -> World:
    agent.register(card=card(agent.id) | {"defaultInputModes": ["*/*"]})
    return World(agent)


async def no_streams(agent: Agent) -> World:
    _capabilities(agent, streaming=False)
    return await submitted(agent)


async def no_push(agent: Agent) -> World:
    _capabilities(agent, streaming=True, pushNotifications=False)
    return await submitted(agent)


async def configured(agent: Agent) -> World:
    """A task with one push notification config."""
    world = await submitted(agent)
    config = {"taskId": world.task_id, "url": HOOK, "authentication": {"scheme": "Bearer", "credentials": "secret"}}
    door = agent.door(name="rest", scope="push:write")
    world.config_id = (await door.call("CreateTaskPushNotificationConfig", config))["id"]
    return world


async def with_extended_card(agent: Agent) -> World:
    agent.register(extendedCard=card("more of it"))
    return World(agent)


async def declaring_an_extended_card(agent: Agent) -> World:
    _capabilities(agent, streaming=True, extendedAgentCard=True)
    return World(agent)


async def needing_an_extension(agent: Agent) -> World:
    _capabilities(agent, streaming=True, extensions=[{"uri": EXTENSION, "required": True}])
    world = World(agent)
    await _send(world, headers={"A2A-Extensions": EXTENSION})
    return world


async def busy_rejects(agent: Agent) -> World:
    agent.register(onBusy="reject")
    return await _after(agent)


async def all_streams_taken(agent: Agent) -> World:
    """As many streams of one subject as the broker of these tests gives it (MAX_STREAMS_PER_SUBJECT)."""
    world = await submitted(agent)
    for _ in range(STREAMS_PER_SUBJECT):
        door = agent.door(name="rest", subject="crowd")
        await agent.exits.enter_async_context(door.open("SubscribeToTask", {"id": world.task_id}))
    return world


STREAMS_PER_SUBJECT = 3


def _capabilities(agent: Agent, **capabilities: object) -> None:
    agent.register(card=card(agent.id) | {"capabilities": capabilities})


# meanwhile -----------------------------------------------------------------------------------------------------------


async def idle(_: World) -> None:
    """Nothing happens."""


async def work(world: World) -> None:
    """A worker takes the task through a whole lookup."""
    await world.lease_and_write(
        status("WORKING", "counting"), artifact("stock", "A:"), artifact("stock", "3", append=True, last=True),
        status("COMPLETED", "done"),
    )  # fmt: skip


async def ask(world: World) -> None:
    await world.lease_and_write(status("INPUT_REQUIRED", "which one?"))


async def fail(world: World) -> None:
    await world.lease_and_write(status("FAILED", "no stock"))


async def reject(world: World) -> None:
    await world.lease_and_write(status("REJECTED", "not mine"))


async def cancel_itself(world: World) -> None:
    await world.lease_and_write(status("CANCELED"))


async def reply(world: World) -> None:
    await world.lease_and_write(direct("pong"))


async def finish(world: World) -> None:
    """The worker that holds the task already finishes it."""
    worker = await world.worker()
    await worker.write(world.lease, artifact("stock", "3", append=True, last=True), status("COMPLETED", "done"))


async def sign_in(world: World) -> None:
    """A worker needs a sign-in, the user says that it is done, and the task is completed."""
    await world.lease_and_write(status("AUTH_REQUIRED", "sign in"))
    door = world.agent.door(name="rest")
    await door.send(say("signed in", taskId=world.lease["taskId"]), now=True)
    await world.lease_and_write(status("COMPLETED", "done"))


async def answer(world: World) -> None:
    """The user answers the question, and the task is completed."""
    await world.agent.door(name="rest").send(say("this one", taskId=world.task_id), now=True)
    await world.lease_and_write(status("COMPLETED", "done"))
