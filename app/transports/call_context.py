"""From an HTTP request to a call: limits, verified token, protocol headers, and the body as strict JSON.

``transports.endpoints`` makes one ``Call`` per request and hands it to the handler. Access is judged before path, query
and body are looked at (native-api.md).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

from starlette.datastructures import Headers
from starlette.requests import Request

from app import offload
from app.auth.caller import CallContext, Caller
from app.errors import (
    ContentTypeNotSupported,
    HeadersTooLarge,
    InvalidArgument,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    RequestTimeout,
    UnsupportedMediaType,
    WaystationError,
)
from app.protocol import strict_json
from app.protocol.card import Site
from app.protocol.version import EXTENSIONS_HEADER, VERSION_HEADER, parse_extensions
from app.transports.gateway import Gateway
from app.transports.urls import site

MAX_HEADER_BYTES = 16 * 1024
MAX_HEADERS = 100
MAX_ID_CHARACTERS = 256
BODY_SECONDS = 30
JSON_TYPES = frozenset({"application/json", "application/a2a+json"})


class Call:
    """One request whose access was judged; ``context`` is None on open endpoints, which judge it themselves."""

    __slots__ = ("_exits", "body_bytes", "context", "gateway", "request")

    def __init__(self, gateway: Gateway, request: Request) -> None:
        self.gateway = gateway
        self.request = request
        self.context: CallContext | None = None
        self.body_bytes = 0
        self._exits: list[Callable[[], object]] = []

    @property
    def ctx(self) -> CallContext:
        """The context of an endpoint that declares a scope."""
        assert self.context is not None, "an open endpoint has no context"
        return self.context

    @property
    def caller(self) -> Caller:
        return self.ctx.caller

    def path(self, name: str) -> str:
        """A path parameter; "" where the template does not have it. Raises NotFound for one that no id can be."""
        value = cast("dict[str, str]", self.request.path_params).get(name, "")
        if "\x00" in value:  # PostgreSQL takes no U+0000 in text
            raise NotFound
        return value

    def query(self, error: type[WaystationError] = InvalidArgument) -> dict[str, str]:
        """The query parameters. Raises ``error`` for one that is given twice or holds U+0000."""
        values: dict[str, str] = {}
        if not self.request.scope["query_string"]:
            return values
        for name, value in self.request.query_params.multi_items():
            if name in values:
                raise error("A query parameter is given twice", violations=[(name, "given twice")])
            if "\x00" in value:
                raise error("A query parameter holds U+0000", violations=[(name, "holds U+0000")])
            values[name] = value
        return values

    async def body(self) -> bytes:
        """The raw body, counted while it arrives. Raises PayloadTooLarge, UnsupportedMediaType or RequestTimeout."""
        raw = await read_body(self.request, self.gateway.settings.max_body_bytes)
        self.body_bytes = len(raw)
        return raw

    async def json(self) -> object:
        """The body as strict JSON, or None when it is empty.

        Raises ContentTypeNotSupported for another media type, ParseError for what the strict loader refuses.
        """
        raw = await self.body()
        if not raw:
            return None
        require_json(self.request)
        return await offload.run(len(raw), lambda: strict_json.loads(raw))

    def on_close(self, release: Callable[[], object]) -> None:
        """Have ``release`` called when the response has ended, in whatever way; the last registered goes first."""
        self._exits.append(release)

    def close(self) -> None:
        while self._exits:
            self._exits.pop()()


async def authenticate(gateway: Gateway, request: Request) -> CallContext:
    """The context of a verified token and the headers. Raises Unauthenticated, Unavailable or InvalidArgument."""
    agent = cast("dict[str, str]", request.path_params).get("agent", "")
    context = await identify(
        gateway, request.headers, gone=request.is_disconnected, site=lambda: site(gateway, request, agent)
    )
    if b"access_token=" in request.scope["query_string"] and "access_token" in request.query_params:
        raise InvalidArgument("Tokens are accepted in the Authorization header only")  # RFC 9700 §4.3.2
    if not context.version and VERSION_HEADER in request.query_params:
        return replace(context, version=request.query_params[VERSION_HEADER])
    return context


async def identify(
    gateway: Gateway, headers: Headers, *, gone: Callable[[], Awaitable[bool]], site: Callable[[], Site]
) -> CallContext:
    """The context of a verified token and the protocol's headers, which are metadata over gRPC. Raises Unauthenticated,
    Unavailable or InvalidArgument."""
    return CallContext(
        caller=await gateway.verifier.verify(headers.get("authorization")),
        version=headers.get(VERSION_HEADER, ""),
        extensions=frozenset(parse_extensions(*headers.getlist(EXTENSIONS_HEADER))),
        idempotency_key=_idempotency_key(headers.get("idempotency-key")),
        traceparent=headers.get("traceparent"),
        last_event_id=headers.get("last-event-id") or None,
        gone=gone,
        site=site,
    )


def require_any(caller: Caller, scopes: tuple[str, ...]) -> None:
    """Raise PermissionDenied unless the token carries one of ``scopes``."""
    if caller.scopes.isdisjoint(scopes):
        raise PermissionDenied(f"The token needs the scope {' or '.join(scopes)}", metadata={"scope": " ".join(scopes)})


def check_headers(request: Request) -> None:
    """Raise HeadersTooLarge over 16 KiB or 100 headers (security.md, Input limits)."""
    raw = request.scope["headers"]
    if len(raw) > MAX_HEADERS or sum(len(name) + len(value) for name, value in raw) > MAX_HEADER_BYTES:
        raise HeadersTooLarge


async def read_body(request: Request, limit: int) -> bytes:
    """The body of at most ``limit`` bytes; it must have arrived within 30 s."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType("Content-Encoding is not supported")
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > limit:
        raise PayloadTooLarge(f"The body has more than {limit} bytes")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise PayloadTooLarge(f"The body has more than {limit} bytes")
                chunks.append(chunk)
    except TimeoutError:
        raise RequestTimeout from None
    return b"".join(chunks)


def require_json(request: Request) -> None:
    """Raise ContentTypeNotSupported unless the body is declared as JSON in UTF-8."""
    content_type = request.headers.get("content-type", "")
    if content_type in JSON_TYPES:
        return
    media_type, *parameters = content_type.split(";")
    if media_type.strip().lower() not in JSON_TYPES:
        raise ContentTypeNotSupported("Content-Type must be application/json or application/a2a+json")
    for name, _, value in (parameter.partition("=") for parameter in parameters):
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in ("utf-8", "utf8"):
            raise ContentTypeNotSupported("JSON must be UTF-8")


def _idempotency_key(value: str | None) -> str | None:
    if value is None or not value.strip():
        return None
    if len(value) > MAX_ID_CHARACTERS:
        raise InvalidArgument(f"Idempotency-Key has more than {MAX_ID_CHARACTERS} characters")
    if "\x00" in value:  # HTTP/1.1 has none in headers, metadata of gRPC may
        raise InvalidArgument("Idempotency-Key holds U+0000")
    return value
