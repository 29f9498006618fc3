"""Mounts the A2A doors of every agent and the readers' native API."""

from collections.abc import Iterator

from fastapi import FastAPI

from app.transports import cards, catalogue, compat_rest, jsonrpc, legacy, openapi, rest
from app.transports.endpoints import Endpoint, UnknownPath, mount_endpoints
from app.transports.gateway import Gateway
from app.transports.native import readers

AGENT = "/agents/{agent}"


def mount(app: FastAPI, gateway: Gateway) -> None:
    """Add all routes of the A2A doors and the readers to ``app``, its OpenAPI document, and the answer to unknown
    paths. No redirects. With DEFAULT_AGENT that agent's doors are at ``/`` as well (product.md, Doors)."""
    mount_endpoints(app, gateway, _doors(AGENT, f"{AGENT}/rpc", f"{AGENT}/rpc/", AGENT, f"{AGENT}/"))
    mount_endpoints(app, gateway, readers.ENDPOINTS)
    mount_endpoints(app, gateway, catalogue.ENDPOINTS)
    if gateway.settings.default_agent:
        mount_endpoints(app, gateway, _doors("", "/rpc", "/rpc/", "/"))
    app.router.redirect_slashes = False
    app.router.default = UnknownPath(gateway)
    openapi.install(app)


def _doors(base: str, *rpc_paths: str) -> Iterator[Endpoint]:
    yield from jsonrpc.endpoints(*rpc_paths)
    yield from compat_rest.endpoints(f"{base}/a2a/v1")  # before rest's paths below a routing key
    yield from rest.endpoints(f"{base}/a2a")
    yield from legacy.endpoints(base)
    yield from cards.endpoints(base)
