"""The one renderer (transports/errors.py): the table whole, and that unknown errors tell nothing."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import cast

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.responses import Response

from app import errors
from app.errors import A2AError, WaystationError
from app.operations.deps import Operations
from app.settings import Settings
from app.transports.call_context import Call
from app.transports.endpoints import OPEN, Door, Endpoint, UnknownPath, mount_endpoints
from app.transports.errors import jsonrpc_body, rest_body
from app.transports.gateway import Gateway, Verifier
from tests.contract.doors import ERRORS
from tests.support.tokens import DEV_SECRET

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, WaystationError) and kind not in (WaystationError, A2AError)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_of_the_tree_renders_on_both_doors(kind: type[WaystationError]) -> None:
    error = kind(metadata={"k": "v"}, violations=[("a.b", "is wrong")])
    rest, rpc = rest_body(error)["error"], jsonrpc_body(error, "id")["error"]
    info = {"reason": kind.reason, "domain": kind.domain, "metadata": {"k": "v"}}
    assert {key: rest["details"][0][key] for key in info} == info
    assert rest["details"] == rpc["data"]
    assert (rest["code"], rest["status"], rpc["code"]) == (kind.http_status, kind.grpc_status, kind.jsonrpc_code)
    assert rest["message"] == rpc["message"] == kind.default_message
    if kind.reason in ERRORS:
        assert ERRORS[kind.reason] == (kind.jsonrpc_code, kind.http_status, kind.grpc_status)
    assert kind.domain == ("a2a-protocol.org" if issubclass(kind, A2AError) else "waystation")


def test_a2as_own_codes() -> None:
    """A2A v1.0.1 §5.4 and §9.5."""
    assert {kind.jsonrpc_code for kind in CLASSES if issubclass(kind, A2AError)} == {
        *range(-32009, -32000), -32700, *range(-32603, -32599),
    }  # fmt: skip


async def explode(_: Call) -> Response:
    raise RuntimeError("postgresql://user:secret@db/x")


async def read(call: Call) -> Response:
    return Response(await call.body())


async def refuse(_: Call) -> Response:
    raise errors.Unavailable(retry_after=1.2)


def application() -> FastAPI:
    settings = Settings(auth_mode="dev", dev_secret=SecretStr(DEV_SECRET), public_url="https://broker.example")
    gateway = Gateway(settings, cast("Verifier", None), cast("Operations", None))
    app = FastAPI(openapi_url=None)
    mount_endpoints(
        app,
        gateway,
        [
            Endpoint("GET", "/explode", OPEN, explode, "x", "x"),
            Endpoint("POST", "/explode", OPEN, explode, "x", "x", door=Door.JSONRPC),
            Endpoint("GET", "/refuse", OPEN, refuse, "x", "x"),
            Endpoint("POST", "/read", OPEN, read, "x", "x"),
        ],
    )
    app.router.default = UnknownPath(gateway)
    return app


async def test_an_unknown_error_shows_a_correlation_id_and_never_its_text(caplog: pytest.LogCaptureFixture) -> None:
    transport = httpx.ASGITransport(application())
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as client:
        rest, rpc = await client.get("/explode"), await client.post("/explode")
    for answer in (rest, rpc):
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "RuntimeError" not in answer.text
    correlation_id = rest.json()["error"]["details"][0]["metadata"]["correlationId"]
    assert rpc.json()["error"]["code"] == -32603
    assert correlation_id in caplog.text
    assert "secret" in caplog.text, "the log has the cause"


async def test_retry_after_is_whole_seconds_rounded_up() -> None:
    transport = httpx.ASGITransport(application())
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as client:
        answer = await client.get("/refuse")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


async def test_a_body_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.transports.call_context.BODY_SECONDS", 0.05)

    async def half_a_body() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    transport = httpx.ASGITransport(application())
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as client:
        answer = await client.post("/read", content=half_a_body())
    assert (answer.status_code, answer.json()["error"]["details"][0]["reason"]) == (408, "REQUEST_TIMEOUT")
    assert answer.headers["connection"] == "close"
