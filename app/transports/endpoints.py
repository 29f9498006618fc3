"""How a handler becomes a route: access first, one error renderer, metrics, no redirect, and an entry in OpenAPI.

Handlers are plain ``async (Call) -> Response`` functions below FastAPI's parameter machinery, which costs half of the
throughput (ledger.md, Measured facts). Used by ``transports.routes`` and by each file that has endpoints.
"""

import functools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from fastapi import FastAPI
from prometheus_client import Counter
from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from app import metrics
from app.auth.scopes import SCOPES
from app.errors import HeadersTooLarge, MethodNotAllowed, NotFound, RequestTimeout, WaystationError
from app.transports import errors
from app.transports.call_context import Call, authenticate, check_headers, require_any
from app.transports.gateway import Gateway
from app.transports.urls import resource_metadata_url

Schema = type[BaseModel] | Mapping[str, Any]


class Open(Enum):
    """The access of documents that everybody may read, and of endpoints that judge access themselves (the card)."""

    OPEN = "open"


OPEN = Open.OPEN
Access = tuple[str, ...] | Open
"""Any one of these scopes, or OPEN."""


class Door(Enum):
    """Which shape errors have."""

    REST = "rest"
    JSONRPC = "jsonrpc"
    REST_V0_3 = "rest-0.3"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path. ``request`` and ``response`` are for OpenAPI: a model or a JSON schema.

    ``query`` names the query parameters with their descriptions; ``streams`` marks text/event-stream answers.
    """

    method: str
    path: str
    access: Access
    handle: Callable[[Call], Awaitable[Response]]
    operation: str
    summary: str
    door: Door = Door.REST
    tags: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    request: Schema | None = None
    response: Schema | None = None
    streams: bool = False
    hidden: bool = False


def mount_endpoints(app: FastAPI, gateway: Gateway, endpoints: Iterable[Endpoint]) -> None:
    """Add the endpoints' routes to ``app``, earlier ones matching first.

    Raises TypeError for an endpoint that declares no scope, or one that does not exist: such a route must not start.
    """
    by_path: defaultdict[str, dict[str, Endpoint]] = defaultdict(dict)
    for endpoint in endpoints:
        check_access(endpoint)
        if endpoint.method in by_path[endpoint.path]:
            raise TypeError(f"{endpoint.method} {endpoint.path} is mounted twice")
        by_path[endpoint.path][endpoint.method] = endpoint
        mounted(app).append(endpoint)
    for path, methods in by_path.items():
        app.router.routes.append(Route(path, _PathApp(gateway, methods), include_in_schema=False))


def mounted(app: FastAPI) -> list[Endpoint]:
    """All endpoints of the application, in the order in which they were mounted."""
    if not hasattr(app.state, "endpoints"):
        app.state.endpoints = list[Endpoint]()
    return cast("list[Endpoint]", app.state.endpoints)


def check_access(endpoint: Endpoint) -> None:
    if endpoint.access is OPEN:
        return
    if not endpoint.access or not SCOPES.issuperset(endpoint.access):  # a bare str fails too: its letters are no scopes
        raise TypeError(f"{endpoint.method} {endpoint.path} must declare its scope, not {endpoint.access!r}")


class _PathApp:
    """All methods of one path, as an ASGI application: Starlette's Route hands the request over unchanged."""

    def __init__(self, gateway: Gateway, methods: Mapping[str, Endpoint]) -> None:
        self._gateway = gateway
        self._methods = dict(methods)
        get = self._methods.get("GET")
        if get is not None and not get.streams:
            self._methods.setdefault("HEAD", get)
        self._any = next(iter(self._methods.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        endpoint = self._methods.get(request.method)
        call = Call(self._gateway, request)
        reply = _Reply(send, (endpoint or self._any).path, request.method)
        try:
            if endpoint is None:
                raise MethodNotAllowed(headers={"Allow": ", ".join(sorted(self._methods))})
            response = await _answer(endpoint, call)
            await response(scope, receive, reply)
        except ClientDisconnect:
            pass
        except Exception as error:
            shown = errors.known(error)
            if reply.started:
                raise
            await _render(shown, self._gateway, request, (endpoint or self._any).door)(scope, receive, reply)
        finally:
            call.close()


async def _answer(endpoint: Endpoint, call: Call) -> Response:
    check_headers(call.request)
    if endpoint.access is not OPEN:
        context = await authenticate(call.gateway, call.request)
        require_any(context.caller, endpoint.access)
        call.context = context
    if endpoint.path.startswith("/v1/"):
        call.query()  # what is given twice is refused, also where nothing is asked for (native-api.md)
    return await endpoint.handle(call)


def _render(error: WaystationError, gateway: Gateway, request: Request, door: Door) -> Response:
    metadata = resource_metadata_url(gateway.settings, request)
    if door is Door.JSONRPC:
        response = errors.jsonrpc_response(error, request.headers, metadata, None)
    elif door is Door.REST_V0_3:
        response = errors.rest_response(error, request.headers, metadata, "application/json", errors.v0_3_rest_body)
    else:
        response = errors.rest_response(error, request.headers, metadata, media_type(request))
    if isinstance(error, HeadersTooLarge | RequestTimeout):
        # not for 413: closing while the client still sends would cost it the answer (http_protocol.py reads on)
        response.headers["Connection"] = "close"
    return response


def media_type(request: Request) -> str:
    """``application/json`` unless the client asks for A2A's own (a2a-server.md)."""
    return "application/a2a+json" if "application/a2a+json" in request.headers.get("accept", "") else "application/json"


class _Reply:
    """``send`` that remembers whether the response has begun, and counts it then."""

    __slots__ = ("_method", "_route", "_send", "started")

    def __init__(self, send: Send, route: str, method: str) -> None:
        self._send = send
        self._route = route
        self._method = method if method in _METHODS else "other"
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            _requests(self._route, self._method, message["status"]).inc()
        await self._send(message)


@functools.cache
def _requests(route: str, method: str, status: int) -> Counter:
    """The one series of these labels; to find it anew for each request takes longer than to count."""
    return metrics.REQUESTS.labels(route, method, str(status))


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class UnknownPath:
    """What ``app.router.default`` should be: NOT_FOUND in the REST shape, and never a redirect."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        request = Request(scope, receive, send)
        reply = _Reply(send, "unmatched", request.method)
        await _render(NotFound(), self._gateway, request, Door.REST)(scope, receive, reply)
