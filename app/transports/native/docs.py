"""What the service says of itself: ``/openapi.json`` and ``/docs`` of its API, RFC 9728's document of its tokens.

Mounted by ``app.main``. The page is one document without scripts and without anything fetched from elsewhere.
"""

from collections.abc import Sequence
from html import escape
from typing import cast

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from app.auth.scopes import SCOPES
from app.protocol import strict_json
from app.transports.call_context import Call
from app.transports.endpoints import OPEN, Endpoint, mounted
from app.transports.urls import base_url

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .8rem .3rem 0;vertical-align:top;"
    "border-bottom:1px solid #8884}code{font:13px ui-monospace,monospace}"
)
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "Cache-Control": "no-cache"}


async def openapi(call: Call) -> Response:
    return Response(strict_json.dumps(_app(call.request).openapi()), media_type="application/json")


async def page(call: Call) -> Response:
    """All endpoints with the scope each needs."""
    app = _app(call.request)
    rows = "".join(_row(endpoint) for endpoint in mounted(app) if not endpoint.hidden)
    html = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{escape(app.title)} API</title><style>{_STYLE}</style>"
        f"<h1>{escape(app.title)} {escape(app.version)}</h1><p>{escape(app.description)}</p>"
        "<p>The whole description, with all schemas: <a href=/openapi.json>/openapi.json</a> (OpenAPI 3.1).</p>"
        f"<table><tr><th>Method<th>Path<th>What<th>Scope</tr>{rows}</table></html>"
    )
    return Response(html, headers=_HEADERS, media_type="text/html; charset=utf-8")


async def protected_resource(call: Call) -> Response:
    """OAuth 2.0 Protected Resource Metadata (RFC 9728 §2): whose tokens are accepted, with which scopes, and where."""
    settings = call.gateway.settings
    body: dict[str, object] = {
        "resource": base_url(settings, call.request),
        "scopes_supported": sorted(SCOPES),
        "bearer_methods_supported": ["header"],
        "resource_name": _app(call.request).title,
    }
    if settings.auth_mode == "oidc":
        body["authorization_servers"] = [issuer.issuer for issuer in settings.issuers]
    return Response(strict_json.dumps(body), media_type="application/json")


def _row(endpoint: Endpoint) -> str:
    scope = "open" if endpoint.access is OPEN else " or ".join(cast("Sequence[str]", endpoint.access))
    cells = (
        f"<code>{endpoint.method}</code>",
        f"<code>{escape(endpoint.path)}</code>",
        escape(endpoint.summary),
        scope,
    )
    return f"<tr><td>{'<td>'.join(cells)}</tr>"


def _app(request: Request) -> FastAPI:
    return cast("FastAPI", request.scope["app"])


ENDPOINTS = (
    Endpoint("GET", "/openapi.json", OPEN, openapi, "openapi", "This API as OpenAPI", tags=("operators",)),
    Endpoint("GET", "/docs", OPEN, page, "docs", "This API for people", tags=("operators",)),
    Endpoint(
        "GET",
        "/.well-known/oauth-protected-resource",
        OPEN,
        protected_resource,
        "protectedResource",
        "Which tokens are accepted (RFC 9728)",
        tags=("operators",),
    ),
)
