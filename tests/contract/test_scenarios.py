"""Every row of the table (tests/contract/scenarios) through every door: one meaning each, so no door can drift."""

import asyncio

import pytest

from app.operations.registry import BY_NAME
from tests.contract import meaning
from tests.contract.conftest import Agent
from tests.contract.doors import Door, DoorError, Json
from tests.contract.every_door import DOORS
from tests.contract.oracle import ANSWERS, as_proto
from tests.contract.scenarios import Scenario
from tests.contract.scenarios.limits import why_not
from tests.contract.scenarios.table import TABLE
from tests.contract.scenarios.worlds import STREAMS_PER_SUBJECT, World

BROKER_ENVIRONMENT = {
    "WAYSTATION_GRPC_PORT": "0",
    "WAYSTATION_EGRESS_ALLOW_CIDRS": "127.0.0.1/32",
    "WAYSTATION_MAX_STREAMS_PER_SUBJECT": str(STREAMS_PER_SUBJECT),
    "WAYSTATION_BLOCKING_WAIT_SECONDS": "20",
}
ALL_SCOPES = "tasks:read tasks:write tasks:cancel push:write"
ROWS = [
    pytest.param(row, door, id=f"{row.operation} {row.name} [{door}]")
    for row in TABLE
    for door in DOORS
    if why_not(row, door) is None
]


@pytest.mark.parametrize(("row", "door_name"), ROWS)
async def test_scenario(agent: Agent, row: Scenario, door_name: str) -> None:
    world = await row.given(agent)
    door = agent.door(agent=world.agent_id or None, **{"scope": ALL_SCOPES, "tenant": "a"} | row.claims)
    assert await _means(door, row, world) == row.means


async def _means(door: Door, row: Scenario, world: World) -> tuple[str, ...] | str:
    """The answer's words, or the error's reason."""
    opened = asyncio.Event()
    if row.operation != "SubscribeToTask":  # a snapshot is as of the opening; all other answers are whole anyway
        opened.set()
    meanwhile = asyncio.create_task(_after(opened, row, world))
    try:
        if BY_NAME[row.operation].streaming:
            async with door.open(row.operation, row.params(world), **row.headers) as stream:
                opened.set()
                items = await stream.rest(30)
                words = [meaning.of_item(item) for item in items]
        else:
            items = [await door.call(row.operation, row.params(world), **row.headers)]
            words = meaning.of_answer(row.operation, items[0])
        _check_types(door, row, items)
        await meanwhile
        return tuple(words)
    except DoorError as error:
        return error.reason
    finally:
        meanwhile.cancel()


def _check_types(door: Door, row: Scenario, answers: list[Json]) -> None:
    """The JSON doors of 1.0 answer nothing that the official types do not know."""
    if door.name in ("jsonrpc", "rest") and row.operation != "DeleteTaskPushNotificationConfig":
        for answer in answers:
            as_proto(ANSWERS[row.operation], answer, ignore_unknown_fields=False)


async def _after(opened: asyncio.Event, row: Scenario, world: World) -> None:
    await opened.wait()
    await row.meanwhile(world)
