"""The URL this service is reached at, for cards and challenges (a2a-server.md, Agent card)."""

import ipaddress
import re
from collections.abc import Mapping

from starlette.requests import Request

from app.settings import Settings

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(?::\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::\d{1,5})?")


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
        host = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return f"{scheme}://{host}"


def resource_metadata_url(settings: Settings, request: Request) -> str:
    """Where RFC 9728's document is."""
    return base_url(settings, request) + "/.well-known/oauth-protected-resource"


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
