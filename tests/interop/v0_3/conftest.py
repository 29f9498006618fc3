"""Fixtures of the tests with unmodified official clients of A2A 0.3, against two replicas.

The clients find the doors in the agent's card, as their users' programs do, and take and give 0.3's own objects.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.conftest import V0_3_COMMANDS, register, wait_for_card
from tests.interop.programs import Call, ClientProgram, Json
from tests.support.broker import BrokerProcess, card
from tests.support.postgres import SharedPostgres, run_sync
from tests.support.tokens import CLIENT_SCOPE, mint
from tests.support.worker import LeaseWorker

CLIENTS = [(program, binding) for program in V0_3_COMMANDS for binding in ("JSONRPC", "HTTP+JSON")]
ENVIRONMENT = {"WAYSTATION_HEARTBEAT_SECONDS": "0.3", "WAYSTATION_EGRESS_ALLOW_CIDRS": "127.0.0.0/8"}
OWNER = "shop"


@dataclass(frozen=True)
class V03Client:
    """One user of one agent at one replica, with an official client of 0.3."""

    program: ClientProgram = field(repr=False)
    name: str
    binding: str
    url: str
    token: str = field(repr=False)

    def open(self, op: str, **request: Any) -> Call:
        return self.program.call(
            {"op": op, "url": self.url, "token": self.token, "binding": self.binding, "request": request}
        )

    async def one(self, op: str, **request: Any) -> Any:
        """The one object that a unary method gives. Raises ClientError."""
        (item,) = await self.open(op, **request).rest()
        return item


@dataclass(frozen=True)
class V03Agent:
    """An agent of the tenant ``shop``, shared with the tenant a, on two replicas."""

    name: str
    replicas: tuple[BrokerProcess, ...]
    client: tuple[ClientProgram, str, str]

    def user(self, replica: int = 0) -> V03Client:
        program, name, binding = self.client
        url = f"{self.replicas[replica].base_url}/agents/{self.name}"
        return V03Client(program, name, binding, url, mint("a", "user-of-a", f"{CLIENT_SCOPE} push:write"))

    def worker(self, replica: int = 0) -> LeaseWorker:
        return LeaseWorker(self.replicas[replica].base_url, self.name, OWNER)

    def with_extended_card(self) -> None:
        """The tenant a may see more of the agent than the public does."""
        extended = card(self.name, extendedAgentCard=True) | {"description": "For those who are let in."}
        self.replicas[0].register_agent(
            self.name,
            OWNER,
            visibility="shared",
            sharedWith=["a"],
            card=card(self.name, extendedAgentCard=True),
            extendedCard=extended,
        )


@pytest.fixture(scope="module")
def pair(
    postgres_server: SharedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Two brokers on one database, for the tests of a module; one that ends a broker starts it again."""
    name = run_sync(postgres_server.create_database(template_database))
    logs: Path = tmp_path_factory.mktemp("pair")
    first, second = (BrokerProcess(postgres_server.dsn(name), logs / f"{n}.log", **ENVIRONMENT) for n in (1, 2))
    try:
        first.start()
        second.start()
        yield first, second
    finally:
        for broker in (first, second):
            broker.close()
            print(f"--- broker on port {broker.port}\n{broker.output()}")
        run_sync(postgres_server.drop_database(name))


@pytest.fixture(params=CLIENTS, ids=["-".join(client) for client in CLIENTS])
def agent(
    request: pytest.FixtureRequest,
    programs: Callable[[str], ClientProgram],
    pair: tuple[BrokerProcess, BrokerProcess],
) -> V03Agent:
    """A new agent of this test's own, known to both replicas, and this run's official client."""
    program, binding = request.param
    name = f"agent-{uuid4().hex[:12]}"
    register(pair[0], name)
    for replica in pair:
        wait_for_card(f"{replica.base_url}/agents/{name}")
    return V03Agent(name, pair, (programs(program), program, binding))


def say(text: str, **fields: Any) -> Json:
    """A user message of 0.3 with one text part and an id of its own."""
    part = {"kind": "text", "text": text}
    return {"kind": "message", "messageId": uuid4().hex, "role": "user", "parts": [part]} | fields


def short(item: Json) -> str:
    """A stream item in a word or two: ``task working``, ``working``, ``completed!`` (final), ``stock=A:``."""
    if item["kind"] == "task":
        return f"task {item['status']['state']}"
    if item["kind"] == "status-update":
        return item["status"]["state"] + ("!" if item["final"] else "")
    return f"{item['artifact']['artifactId']}={text(item['artifact'])}"


def text(holder: Json) -> str:
    """The text of a message or an artifact."""
    return "".join(part["text"] for part in holder["parts"])
