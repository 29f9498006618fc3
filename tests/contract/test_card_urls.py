"""The URLs in a card: right behind a trusted proxy, from PUBLIC_URL, and never whatever somebody sends."""

import asyncio
import base64
import json
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from pydantic import SecretStr
from starlette.requests import Request

from app.settings import Settings
from app.transports.gateway import Gateway
from app.transports.urls import base_url, grpc_site, site
from tests.contract.conftest import Agent
from tests.support.broker import BrokerProcess
from tests.support.tokens import DEV_SECRET

BROKER_ENVIRONMENT = {"WAYSTATION_TRUSTED_PROXIES": "10.0.0.0/8, 127.0.0.2"}
CARD = "/.well-known/agent-card.json"
BAD_HOSTS = ['x"y<z>', "a b", "", "evil.example/path", "user@host", "h" * 254, "[::1", "h:123456", "a,b", "é"]
GOOD_HOSTS = ["a.example", "a.example:8443", "[::1]:8080", "127.0.0.1"]


@pytest.fixture
def door_name() -> str:
    return "jsonrpc"


def urls_of(card: dict[str, Any]) -> set[str]:
    """All URLs of the service in a card: of its doors, of 0.3's fields, and of the key set."""
    protected = card["signatures"][0]["protected"]
    jku = json.loads(base64.urlsafe_b64decode(protected + "=" * (-len(protected) % 4)))["jku"]
    doors = [*card["supportedInterfaces"], *card["additionalInterfaces"]]
    return {card["url"], jku, *(door["url"] for door in doors)}


def test_agentgateway_1031_and_mycelium_799_forwarded_headers_are_believed_from_trusted_peers_only(
    agent: Agent, shared_broker: BrokerProcess
) -> None:
    agent.register(visibility="shared", sharedWith=["*"])
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "broker.example.org"}
    for peer, base in (("127.0.0.1", shared_broker.base_url), ("127.0.0.2", "https://broker.example.org")):
        transport = httpx.HTTPTransport(local_address=peer)
        with httpx.Client(transport=transport, base_url=shared_broker.base_url) as client:
            card = client.get(f"/agents/{agent.id}{CARD}", headers=forwarded).json()
            (listed,) = (
                found
                for found in client.get("/.well-known/agents.json", headers=forwarded).json()["agents"]
                if found["name"] == agent.id
            )
        doors = f"{base}/agents/{agent.id}"
        assert urls_of(card) == {f"{doors}/rpc", f"{doors}/a2a", f"{base}/.well-known/jwks.json"}, peer
        assert listed == card


async def test_a_hostile_host_header_is_repeated_nowhere(agent: Agent) -> None:
    agent.register(visibility="shared", sharedWith=["*"])
    for host in ("evil.example/path", 'x"><script>', "user@evil.example", "a b.evil.example"):
        request = f"GET /agents/{agent.id}{CARD} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", agent.broker.port)
        writer.write(request.encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 ")
        assert b"evil" not in answer, host
        assert b"<script" not in answer, host


def gateway(grpc_port: int | None = None, **settings: Any) -> Gateway:
    """What these functions read of a gateway."""
    return cast(
        "Gateway",
        SimpleNamespace(
            settings=Settings(auth_mode="dev", dev_secret=SecretStr(DEV_SECRET), **settings), grpc_port=grpc_port
        ),
    )


def request_to(host: str, scheme: str = "http") -> Request:
    headers = [(b"host", host.encode("latin-1"))]
    return Request({"type": "http", "scheme": scheme, "server": ("127.0.0.1", 8080), "headers": headers})


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_a_host_that_is_no_host_is_not_repeated(host: str) -> None:
    assert base_url(gateway().settings, request_to(host)) == "http://127.0.0.1:8080"


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_a_host_is_repeated(host: str) -> None:
    assert base_url(gateway().settings, request_to(host, "https")) == f"https://{host}"
    public = gateway(public_url="https://public.example/")
    assert base_url(public.settings, request_to(host)) == "https://public.example"


@pytest.mark.parametrize(
    ("settings", "host", "grpc"),
    [
        ({}, "a.example:8443", "a.example:9090"),
        ({}, "[::1]:8080", "[::1]:9090"),
        ({"public_url": "https://public.example:444/"}, "a.example", "public.example:9090"),
        ({"public_url": "https://p.example", "public_grpc_url": "grpc.example:443"}, "a.example", "grpc.example:443"),
    ],
)
def test_the_grpc_url_is_host_and_port_of_the_door(settings: dict[str, str], host: str, grpc: str) -> None:
    assert site(gateway(9090, **settings), request_to(host), "x").grpc == grpc
    assert site(gateway(None, **settings), request_to(host), "x").grpc == "", "the door is not open"


@pytest.mark.parametrize(
    ("settings", "service", "grpc"),
    [
        ({}, "http://127.0.0.1:8080", "127.0.0.1:9090"),
        ({"host": "::1"}, "http://[::1]:8080", "[::1]:9090"),
        ({"public_url": "https://public.example/"}, "https://public.example", "public.example:9090"),
        ({"public_grpc_url": "grpc.example:443"}, "http://127.0.0.1:8080", "grpc.example:443"),
    ],
)
def test_a_grpc_client_is_told_where_the_http_doors_are(settings: dict[str, str], service: str, grpc: str) -> None:
    found = grpc_site(gateway(9090, **settings), "x")
    assert (found.service, found.agent, found.grpc) == (service, f"{service}/agents/x", grpc)
