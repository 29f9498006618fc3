"""All doors by name, each made alike: a client of one caller at one agent. Called by the fixtures and the table."""

from collections.abc import Callable
from functools import partial

from tests.contract.doors import Door
from tests.support.broker import BrokerProcess

DOORS: dict[str, Callable[[BrokerProcess, str, str], Door]] = {
    name: partial(lambda name, broker, agent, token: Door(name, broker.base_url, agent, token), name)
    for name in ("jsonrpc", "rest")
}
