"""Errors as gRPC statuses with details (A2A v1.0.1 §10.6). Called by ``grpc.service`` for every method.

The details are those of the JSON doors (``transports.errors``), as google.rpc.Status in ``grpc-status-details-bin``.
"""

from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.json_format import ParseDict
from google.rpc import (
    error_details_pb2,  # noqa: F401  # pyright: ignore[reportUnusedImport] - the details' types, found by name
    status_pb2,
)

from app.errors import WaystationError
from app.transports.errors import details, retry_after

Context = grpc.aio.ServicerContext[Any, Any]

_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
MAX_TEXT_CHARACTERS = 500
MAX_VIOLATIONS_CHARACTERS = 2500
"""Clients take 8 KiB of metadata by default; the text goes out twice, and base64 adds a third to the details."""


async def abort(context: Context, error: WaystationError) -> NoReturn:
    """End the call with the error's status. Raises grpc's own AbortError, which must get through to it."""
    status = status_of(error)
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(code_of(error), status.message, trailing)
    raise AssertionError("abort raises")


def code_of(error: WaystationError) -> grpc.StatusCode:
    return grpc.StatusCode[error.grpc_status]


def status_of(error: WaystationError) -> status_pb2.Status:
    """The code, the text, ErrorInfo, BadRequest where fields are at fault, and RetryInfo where trying again helps."""
    code, message, content = code_of(error).value[0], error.message[:MAX_TEXT_CHARACTERS], details(error)
    for detail in content:
        if "fieldViolations" in detail:
            detail["fieldViolations"] = _first_of(detail["fieldViolations"])
    if (wait := retry_after(error)) is not None:
        content.append({"@type": _RETRY_INFO, "retryDelay": f"{wait:.3f}s"})
    return ParseDict({"code": code, "message": message, "details": content}, status_pb2.Status())


def _first_of(violations: list[dict[str, str]]) -> list[dict[str, str]]:
    left = MAX_VIOLATIONS_CHARACTERS
    for count, violation in enumerate(violations):
        left -= len(violation["field"]) + len(violation["description"])
        if left < 0:
            return violations[:count]
    return violations
