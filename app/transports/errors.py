"""The one place where errors become answers: the REST shape (A2A v1.0.1 §11.6, also ``/v1``) and JSON-RPC's (§9.5).

Called by ``transports.endpoints`` for every handler, so no handler renders an error itself.
"""

import logging
import math
import random
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.errors import (
    DOMAIN,
    InternalError,
    PermissionDenied,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    WaystationError,
)
from app.protocol import strict_json

logger = logging.getLogger(__name__)

JsonObject = dict[str, Any]
RequestId = str | int | float | None

_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_HTTP_LEVEL = frozenset({401, 403, 404, 405, 408, 413, 415, 429, 431, 500, 503})
"""What the HTTP layer, and not an operation, refuses: these keep their status on the JSON-RPC door too, whose other
errors are 200 (clients, proxies and load balancers act on them)."""


def known(error: BaseException) -> WaystationError:
    """The error to show. An unknown one is logged and becomes InternalError with a correlation id, never its text."""
    if isinstance(error, WaystationError):
        return error
    correlation_id = secrets.token_hex(8)
    if isinstance(error, ClientDisconnect):
        logger.debug("client went away [%s]", correlation_id)
    else:
        logger.error("unexpected error [%s]", correlation_id, exc_info=error)
    return InternalError(f"Internal error, correlation id {correlation_id}", metadata={"correlationId": correlation_id})


def details(error: WaystationError) -> list[JsonObject]:
    """ErrorInfo, and BadRequest where fields are at fault."""
    info = {"@type": _ERROR_INFO, "reason": error.reason, "domain": error.domain, "metadata": error.metadata}
    if not error.violations:
        return [info]
    violations = [{"field": field, "description": text} for field, text in error.violations]
    return [info, {"@type": _BAD_REQUEST, "fieldViolations": violations}]


def rest_body(error: WaystationError) -> JsonObject:
    """``{"error": {"code", "status", "message", "details"}}``, a google.rpc.Status with the HTTP code."""
    return {
        "error": {
            "code": error.http_status,
            "status": error.grpc_status,
            "message": error.message,
            "details": details(error),
        }
    }


def jsonrpc_body(error: WaystationError, request_id: RequestId) -> JsonObject:
    """A JSON-RPC 2.0 error response; ``data`` is an array of details."""
    body = {"code": error.jsonrpc_code, "message": error.message, "data": details(error)}
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def v0_3_rest_body(error: WaystationError) -> JsonObject:
    """``{"code", "message", "data"}`` with the JSON-RPC code, which is what 0.3's HTTP+JSON clients read."""
    return {"code": error.jsonrpc_code, "message": error.message, "data": details(error)}


def rest_response(
    error: WaystationError,
    request_headers: Mapping[str, str],
    resource_metadata: str,
    media_type: str,
    body: Callable[[WaystationError], JsonObject] = rest_body,
) -> Response:
    """``resource_metadata`` is the URL of RFC 9728's document, named by every 401 and 403."""
    headers = headers_of(error, request_headers, resource_metadata)
    return Response(strict_json.dumps(body(error)), error.http_status, headers, media_type)


def jsonrpc_response(
    error: WaystationError,
    request_headers: Mapping[str, str],
    resource_metadata: str,
    request_id: RequestId,
) -> Response:
    status = error.http_status if is_http_level(error) else 200
    headers = headers_of(error, request_headers, resource_metadata)
    return Response(strict_json.dumps(jsonrpc_body(error, request_id)), status, headers, "application/json")


def is_http_level(error: WaystationError) -> bool:
    """Whether the error keeps its HTTP status on the JSON-RPC door: ours by status; A2A's own are the protocol's."""
    return (error.domain == DOMAIN or isinstance(error, InternalError)) and error.http_status in _HTTP_LEVEL


def retry_after(error: WaystationError) -> float | None:
    """After how many seconds to try again, of an error that is worth it."""
    if not isinstance(error, Unavailable | TooManyRequests):
        return None
    return error.retry_after if error.retry_after is not None else random.uniform(1, 5)  # noqa: S311 - jitter


def headers_of(error: WaystationError, request_headers: Mapping[str, str], resource_metadata: str) -> dict[str, str]:
    headers = dict(error.headers)
    if (wait := retry_after(error)) is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    if isinstance(error, Unauthenticated):
        # RFC 6750 §3.1: no error code when no credential came.
        reason = ', error="invalid_token"' if "authorization" in request_headers else ""
        headers["WWW-Authenticate"] = f'Bearer resource_metadata="{resource_metadata}"{reason}'
    if isinstance(error, PermissionDenied):
        scope = error.metadata.get("scope", "")
        challenge = f'Bearer error="insufficient_scope", scope="{scope}", resource_metadata="{resource_metadata}"'
        headers["WWW-Authenticate"] = challenge
    return headers
