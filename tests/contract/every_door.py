"""All doors by name, each made alike: a client of one caller at one agent. Called by the fixtures and the table."""

from collections.abc import Callable

from tests.contract import legacy_door, v0_3_doors
from tests.contract.doors import Door
from tests.contract.grpc_door import GrpcDoor
from tests.contract.legacy_door import LegacyDoor
from tests.contract.v0_3_doors import V03Door
from tests.support.broker import BrokerProcess

MakeDoor = Callable[[BrokerProcess, str, str], Door]


def _over_http(kind: Callable[[str, str, str, str], Door], name: str) -> MakeDoor:
    return lambda broker, agent, token: kind(name, broker.base_url, agent, token)


DOORS: dict[str, MakeDoor] = {
    "jsonrpc": _over_http(Door, "jsonrpc"),
    "rest": _over_http(Door, "rest"),
    "grpc": lambda broker, agent, token: GrpcDoor(broker.grpc_target, agent, token),
    **{name: _over_http(V03Door, name) for name in v0_3_doors.NAMES},
    legacy_door.NAME: _over_http(LegacyDoor, legacy_door.NAME),
}
"""``grpc`` needs a broker with WAYSTATION_GRPC_PORT."""
