"""Where the gRPC door listens and what starting it says (native-api.md, Settings)."""

import re
import subprocess
import sys

import httpx
import pytest

from app.cli.doctor.host import check_host
from app.cli.doctor.report import Level
from app.settings import Settings
from tests.contract.doors import say
from tests.contract.grpc_door import GrpcDoor
from tests.integration.grpc.conftest import At, StartBroker
from tests.support.broker import ROOT, BrokerProcess
from tests.support.tokens import DEV_SECRET, bearer, mint

pytestmark = pytest.mark.usefixtures("database_url")  # made before a test's event loop runs
WITHOUT_GRPC = "import sys; sys.modules['grpc'] = None; from app.__main__ import main; sys.exit(main())"


def serve(database_url: str, *arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    """`waystation serve` that must end by itself."""
    program = [sys.executable, "-c", code] if code else [sys.executable, "-m", "app"]
    environment = {
        "WAYSTATION_DATABASE_URL": database_url,
        "WAYSTATION_AUTH_MODE": "dev",
        "WAYSTATION_DEV_SECRET": DEV_SECRET,
    }
    command = [*program, "serve", "--port", "0", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_without_the_extra_serve_says_which_command_helps(database_url: str) -> None:
    ended = serve(database_url, "--grpc-port", "0", code=WITHOUT_GRPC)
    assert ended.returncode == 2
    assert "pip install 'waystation[grpc]'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("missing", "level"), [("nothing", Level.OK), ("grpc", Level.FAIL), ("grpc_health", Level.FAIL)]
)
def test_doctor_looks_for_the_extra(monkeypatch: pytest.MonkeyPatch, missing: str, level: Level) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    (found,) = [one for one in check_host(Settings(grpc_port=0, port=0)) if one.check == "grpc"]
    assert found.level is level
    assert level is Level.OK or "pip install 'waystation[grpc]'" in (found.remedy or "")


def test_a_port_that_is_taken_is_one_line(database_url: str, at: At) -> None:
    port = at.broker.grpc_target.rpartition(":")[2]
    ended = serve(database_url, "--grpc-port", port)
    assert ended.returncode == 1
    assert re.search(rf"cannot listen on 127\.0\.0\.1:{port} for gRPC; --grpc-port chooses another", ended.stderr)
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_none_is_refused(database_url: str) -> None:
    assert serve(database_url, "--grpc-port", "65536").returncode == 2


async def test_port_0_takes_a_free_one_and_the_card_names_it(start_broker: StartBroker) -> None:
    broker = start_broker(WAYSTATION_GRPC_PORT="0")
    broker.register_agent("clerk")
    (target,) = re.findall(r"listening for gRPC on (127\.0\.0\.1:\d+)", broker.output())
    assert card_interfaces(broker, "clerk")["GRPC"] == [{"url": target, "tenant": "clerk", "protocolVersion": "1.0"}]
    async with GrpcDoor(target, "clerk", mint("a")) as door:
        assert await door.send(say("go"), now=True)


async def test_the_card_names_the_public_address(start_broker: StartBroker) -> None:
    broker = start_broker(WAYSTATION_GRPC_PORT="0", WAYSTATION_PUBLIC_GRPC_URL="grpc.example.com:443")
    broker.register_agent("clerk")
    assert card_interfaces(broker, "clerk")["GRPC"][0]["url"] == "grpc.example.com:443"


def test_without_the_setting_there_is_no_door_and_no_interface(broker: BrokerProcess) -> None:
    broker.register_agent("clerk")
    assert "gRPC" not in broker.output()
    assert "GRPC" not in card_interfaces(broker, "clerk")


async def test_an_empty_routing_key_is_the_default_agent(start_broker: StartBroker) -> None:
    broker = start_broker(WAYSTATION_GRPC_PORT="0", WAYSTATION_DEFAULT_AGENT="clerk")
    broker.register_agent("clerk")
    async with (
        GrpcDoor(broker.grpc_target, "", mint("a")) as door,
        GrpcDoor(broker.grpc_target, "clerk", mint("a")) as named,
    ):
        task = await door.send(say("go"), now=True)
        assert await named.get(task["id"]) == await door.get(task["id"])


def card_interfaces(broker: BrokerProcess, agent: str) -> dict[str, list[dict[str, str]]]:
    """The card's interfaces by binding."""
    url = f"{broker.base_url}/agents/{agent}/.well-known/agent-card.json"
    card = httpx.get(url, headers=bearer(mint("a")), trust_env=False).json()
    found: dict[str, list[dict[str, str]]] = {}
    for interface in card["supportedInterfaces"]:
        found.setdefault(interface.pop("protocolBinding"), []).append(interface)
    return found
