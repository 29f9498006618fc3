"""JSON documents that clients keep: ETag, Last-Modified, 304 (A2A v1.0 §8.6; RFC 9110 §13). For the card doors."""

from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from starlette.responses import Response

from app.protocol import strict_json
from app.protocol.card import etag
from app.transports.call_context import Call


def cached_json(
    call: Call, body: object, *, public: bool, max_age: int, modified: datetime | None = None, varies: bool = True
) -> Response:
    """``body``, or 304 for a tag or a date that the client has. ``max_age`` in seconds.

    ``public`` lets shared caches keep it; ``varies`` says that it depends on who asks and at which URL.
    """
    printed = strict_json.dumps(body).encode()
    headers = {"ETag": etag(printed), "Cache-Control": f"{'public' if public else 'private'}, max-age={max_age}"}
    if modified is not None:
        headers["Last-Modified"] = format_datetime(_whole_seconds(modified), usegmt=True)
    if varies:
        headers["Vary"] = _vary(call)
    if _is_fresh(call, headers["ETag"], modified):
        return Response(status_code=304, headers=headers)
    return Response(printed, 200, headers, "application/json")


def _vary(call: Call) -> str:
    """The headers that URLs in a document are made of (``transports.urls``), and the token."""
    settings = call.gateway.settings
    if settings.public_url:
        return "Authorization"
    forwarded = ", X-Forwarded-Host, X-Forwarded-Proto" if settings.trusted_proxies else ""
    return f"Authorization, Host{forwarded}"


def _is_fresh(call: Call, tag: str, modified: datetime | None) -> bool:
    """RFC 9110 §13.1: If-None-Match (a list, or ``*``, compared weakly) wins over If-Modified-Since."""
    tags = call.request.headers.getlist("if-none-match")
    if tags:
        asked = {entry.strip().removeprefix("W/") for line in tags for entry in line.split(",")}
        return "*" in asked or tag in asked
    since = call.request.headers.get("if-modified-since")
    if since is None or modified is None:
        return False
    try:
        moment = parsedate_to_datetime(since)
    except (ValueError, OverflowError):
        return False
    return _whole_seconds(modified) <= (moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _whole_seconds(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)
