"""Errors as gRPC statuses with details (A2A v1.0.1 §10.6). Called by ``grpc.service`` for every method.

The details are those of the JSON doors (``transports.errors``), as google.rpc.Status in ``grpc-status-details-bin``.
"""

import asyncio
from typing import Any, Final, NoReturn

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

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
MAX_TEXT_CHARACTERS = 500
MAX_VIOLATIONS_CHARACTERS = 2500
"""Clients take 8 KiB of metadata by default; the text goes out twice, and base64 adds a third to the details."""


async def abort(context: Context, status: status_pb2.Status) -> NoReturn:
    """End the call with this status. Raises grpc's own AbortError, which must get through to it."""
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    try:
        await context.abort(code_of(status), status.message, trailing)
    except grpc.aio.AbortError:
        raise
    except grpc.aio.BaseError:  # the client reads nothing, and the process stops
        raise asyncio.CancelledError from None


def code_of(status: status_pb2.Status) -> grpc.StatusCode:
    return _CODES[status.code]


def status_of(error: WaystationError) -> status_pb2.Status:
    """The code, the text, ErrorInfo, BadRequest where fields are at fault, and RetryInfo where trying again helps."""
    code, content = grpc.StatusCode[error.grpc_status].value[0], details(error)
    for detail in content:
        if "fieldViolations" in detail:
            detail["fieldViolations"] = _first_of(detail["fieldViolations"])
    if (wait := retry_after(error)) is not None:
        content.append({"@type": _RETRY_INFO, "retryDelay": f"{wait:.3f}s"})
    return ParseDict(
        {"code": code, "message": error.message[:MAX_TEXT_CHARACTERS], "details": content}, status_pb2.Status()
    )


def _first_of(violations: list[dict[str, str]]) -> list[dict[str, str]]:
    left = MAX_VIOLATIONS_CHARACTERS
    for count, violation in enumerate(violations):
        left -= len(violation["field"]) + len(violation["description"])
        if left < 0:
            return violations[:count]
    return violations
