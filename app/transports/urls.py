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
    service = base_url(gateway.settings, request)
    return Site(service, _agent_url(service, agent_id), _grpc_url(gateway, service.partition("://")[2]))


def grpc_site(gateway: Gateway, authority: str, agent_id: str) -> Site:
    """Where the client of a gRPC call to ``authority`` (host:port) reaches them.

    Without PUBLIC_URL the HTTP doors are taken to be on the same host, on this process's own port.
    """
    settings = gateway.settings
    match = _HOST.fullmatch(authority)
    host = match[1] if match else _bracketed(settings.host)
    service = (settings.public_url or f"http://{host}:{settings.port}").rstrip("/")
    with_port = settings.public_grpc_url or (authority if match and authority != host else "")
    return Site(service, _agent_url(service, agent_id), with_port or f"{host}:{gateway.grpc_port}")


def resource_metadata_url(settings: Settings, request: Request) -> str:
    """Where RFC 9728's document is."""
    return base_url(settings, request) + "/.well-known/oauth-protected-resource"


def _agent_url(service: str, agent_id: str) -> str:
    return f"{service}/agents/{agent_id}" if agent_id else service


def _grpc_url(gateway: Gateway, host: str) -> str:
    """PUBLIC_GRPC_URL, else ``host`` (its port does not count) with the gRPC door's port; "" without that door."""
    if gateway.grpc_port is None:
        return ""
    match = _HOST.match(host)
    name = match[1] if match else _bracketed(gateway.settings.host)
    return gateway.settings.public_grpc_url or f"{name}:{gateway.grpc_port}"


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
