"""The URLs this service is reached at, for cards and challenges (a2a-server.md, Agent card)."""

import ipaddress
import re
from collections.abc import Mapping

from starlette.requests import Request

from app.protocol.card import Site
from app.settings import Settings
from app.transports.gateway import Gateway

_HOST = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")


def base_url(settings: Settings, request: Request) -> str:
    """Scheme and authority without a trailing slash: PUBLIC_URL, else the Host header.

    X-Forwarded-Proto and -Host are believed only from a peer in TRUSTED_PROXIES; of a list the last entry counts, the
    one that peer itself wrote. A Host that is not a host falls back to the address the request came in on.
    """
    if settings.public_url:
        return settings.public_url.rstrip("/")
    headers, scheme = request.headers, str(request.scope.get("scheme", "http"))
    host = headers.get("host", "")
    if _is_trusted(settings, request):
        scheme = _last(headers, "x-forwarded-proto") or scheme
        host = _last(headers, "x-forwarded-host") or host
    if scheme not in ("http", "https"):
        scheme = "http"
    if not _HOST.fullmatch(host):
        address, port = request.scope.get("server") or (settings.host, settings.port)
        host = f"{_bracketed(address)}:{port}"
    return f"{scheme}://{host}"


def site(gateway: Gateway, request: Request, agent_id: str) -> Site:
    """Where the client of an HTTP ``request`` reaches the service and the agent; agent "" is the one at the root."""
    return _site(gateway, base_url(gateway.settings, request), agent_id)


def grpc_site(gateway: Gateway, agent_id: str) -> Site:
    """Where a client of the gRPC door reaches them: PUBLIC_URL, else the address that this process listens on, for
    grpc.aio does not tell which authority was asked for."""
    settings = gateway.settings
    public = (settings.public_url or "").rstrip("/")
    return _site(gateway, public or f"http://{_bracketed(settings.host)}:{settings.port}", agent_id)


def resource_metadata_url(settings: Settings, request: Request) -> str:
    """Where RFC 9728's document is."""
    return base_url(settings, request) + "/.well-known/oauth-protected-resource"


def _site(gateway: Gateway, service: str, agent_id: str) -> Site:
    """The gRPC door is at PUBLIC_GRPC_URL, else on the same host at its own port."""
    agent = f"{service}/agents/{agent_id}" if agent_id else service
    if gateway.grpc_port is None:
        return Site(service, agent)
    match = _HOST.match(service.partition("://")[2])
    host = match[1] if match else _bracketed(gateway.settings.host)
    return Site(service, agent, gateway.settings.public_grpc_url or f"{host}:{gateway.grpc_port}")


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _is_trusted(settings: Settings, request: Request) -> bool:
    if not settings.trusted_proxies or request.client is None:
        return False
    try:
        peer = ipaddress.ip_address(request.client.host)
        return any(peer in ipaddress.ip_network(entry, strict=False) for entry in settings.trusted_proxies)
    except ValueError:
        return False


def _last(headers: Mapping[str, str], name: str) -> str:
    return headers.get(name, "").rpartition(",")[2].strip()
