"""Every error a caller can see, each with its mapping to the three bindings.

WaystationError
├── A2A's own (domain ``a2a-protocol.org``, A2A v1.0.1 §5.4 and §9.5)
│   ├── TaskNotFound · TaskNotCancelable · PushNotificationNotSupported · UnsupportedOperation
│   ├── ContentTypeNotSupported · InvalidAgentResponse · ExtendedAgentCardNotConfigured
│   ├── ExtensionSupportRequired · VersionNotSupported
│   └── ParseError · InvalidRequest · MethodNotFound · InvalidParams · InternalError
└── Waystation's (domain ``waystation``)
    ├── who:      Unauthenticated · PermissionDenied
    ├── input:    InvalidArgument · InvalidTransition · ArtifactUnknown · ArtifactClosed · NotSupported
    │             PayloadTooLarge · HeadersTooLarge · RequestTimeout · UnsupportedMediaType
    ├── state:    NotFound · Conflict (IdempotencyConflict · TaskBusy · LeaseLost · TaskTerminal
    │             · ProducerEventConflict · AgentIdTaken · AgentBusy · PreconditionFailed)
    └── capacity: TooManyRequests · Unavailable

Raised anywhere, rendered once per binding in ``app.transports.errors``. Races that are expected (a lost lease, a task
already terminal) travel as values inside the ledger (``app.ledger.rows``) and become errors only at the edge.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

A2A_DOMAIN = "a2a-protocol.org"
DOMAIN = "waystation"


class WaystationError(Exception):
    """Base of all errors that are shown to callers.

    ``message`` is safe to show; ``metadata`` becomes ErrorInfo.metadata (string to string); ``violations`` are
    (field path, description) pairs for google.rpc.BadRequest; ``retry_after`` is in seconds.
    """

    reason: ClassVar[str] = "INTERNAL_ERROR"
    domain: ClassVar[str] = DOMAIN
    jsonrpc_code: ClassVar[int] = -32603
    http_status: ClassVar[int] = 500
    grpc_status: ClassVar[str] = "INTERNAL"
    default_message: ClassVar[str] = "Internal error"

    def __init__(
        self,
        message: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[tuple[str, str]] = (),
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.message = message or self.default_message
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after = retry_after
        self.headers = dict(headers or {})
        super().__init__(self.message)


# A2A's own -----------------------------------------------------------------------------------------------------------


class A2AError(WaystationError):
    domain = A2A_DOMAIN


class TaskNotFound(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "TASK_NOT_FOUND", -32001, 404, "NOT_FOUND"
    default_message = "Task not found"


class TaskNotCancelable(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "TASK_NOT_CANCELABLE", -32002, 400, "FAILED_PRECONDITION"
    default_message = "Task cannot be canceled"


class PushNotificationNotSupported(A2AError):
    reason, jsonrpc_code, http_status = "PUSH_NOTIFICATION_NOT_SUPPORTED", -32003, 400
    grpc_status = "FAILED_PRECONDITION"
    default_message = "Push notifications are not supported"


class UnsupportedOperation(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "UNSUPPORTED_OPERATION", -32004, 400, "FAILED_PRECONDITION"
    default_message = "This operation is not supported"


class ContentTypeNotSupported(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "CONTENT_TYPE_NOT_SUPPORTED", -32005, 400, "INVALID_ARGUMENT"
    default_message = "Incompatible content types"


class InvalidAgentResponse(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "INVALID_AGENT_RESPONSE", -32006, 500, "INTERNAL"
    default_message = "Invalid agent response"


class ExtendedAgentCardNotConfigured(A2AError):
    reason, jsonrpc_code, http_status = "EXTENDED_AGENT_CARD_NOT_CONFIGURED", -32007, 400
    grpc_status = "FAILED_PRECONDITION"
    default_message = "No extended agent card is configured"


class ExtensionSupportRequired(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "EXTENSION_SUPPORT_REQUIRED", -32008, 400, "FAILED_PRECONDITION"
    default_message = "A required extension was not requested"


class VersionNotSupported(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "VERSION_NOT_SUPPORTED", -32009, 400, "FAILED_PRECONDITION"
    default_message = "Protocol version not supported; send the header A2A-Version: 1.0"


class ParseError(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "PARSE_ERROR", -32700, 400, "INVALID_ARGUMENT"
    default_message = "Invalid JSON payload"


class InvalidRequest(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "INVALID_REQUEST", -32600, 400, "INVALID_ARGUMENT"
    default_message = "Request payload validation error"


class MethodNotFound(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "METHOD_NOT_FOUND", -32601, 404, "UNIMPLEMENTED"
    default_message = "Method not found"


class InvalidParams(A2AError):
    reason, jsonrpc_code, http_status, grpc_status = "INVALID_PARAMS", -32602, 400, "INVALID_ARGUMENT"
    default_message = "Invalid parameters"


class InternalError(A2AError):
    """An unexpected fault. The text shown is a correlation id, never the cause."""

    reason, jsonrpc_code, http_status, grpc_status = "INTERNAL_ERROR", -32603, 500, "INTERNAL"


# Waystation's: who ---------------------------------------------------------------------------------------------------


class Unauthenticated(WaystationError):
    """No credential, or one that is not accepted; the cause is only counted, never told (security.md, Tokens)."""

    reason, jsonrpc_code, http_status, grpc_status = "UNAUTHENTICATED", -32600, 401, "UNAUTHENTICATED"
    default_message = "A valid bearer token is required"


class PermissionDenied(WaystationError):
    """A good token without the scope; ``metadata["scope"]`` names the one that is needed."""

    reason, jsonrpc_code, http_status, grpc_status = "INSUFFICIENT_SCOPE", -32600, 403, "PERMISSION_DENIED"
    default_message = "Insufficient scope"


# Waystation's: input -------------------------------------------------------------------------------------------------


class InvalidArgument(WaystationError):
    reason, jsonrpc_code, http_status, grpc_status = "INVALID_ARGUMENT", -32602, 400, "INVALID_ARGUMENT"
    default_message = "Invalid argument"


class InvalidTransition(InvalidArgument):
    reason = "INVALID_TRANSITION"
    default_message = "The events of this batch are not a possible course of a task"


class ArtifactUnknown(InvalidArgument):
    reason = "ARTIFACT_UNKNOWN"
    default_message = "append=true to an artifact that does not exist"


class ArtifactClosed(InvalidArgument):
    reason = "ARTIFACT_CLOSED"
    default_message = "append=true to an artifact whose last chunk has been written"


class NotSupported(InvalidArgument):
    """A field whose capability is not built yet is refused, never ignored (native-api.md)."""

    reason = "NOT_SUPPORTED"
    default_message = "Not supported"


class PayloadTooLarge(WaystationError):
    reason, jsonrpc_code, http_status, grpc_status = "PAYLOAD_TOO_LARGE", -32602, 413, "RESOURCE_EXHAUSTED"
    default_message = "Request body too large"


class HeadersTooLarge(WaystationError):
    reason, jsonrpc_code, http_status, grpc_status = "HEADERS_TOO_LARGE", -32600, 431, "RESOURCE_EXHAUSTED"
    default_message = "Request headers too large"


class RequestTimeout(WaystationError):
    reason, jsonrpc_code, http_status, grpc_status = "REQUEST_TIMEOUT", -32600, 408, "DEADLINE_EXCEEDED"
    default_message = "The request body did not arrive in time"


class UnsupportedMediaType(WaystationError):
    reason, jsonrpc_code, http_status, grpc_status = "UNSUPPORTED_MEDIA_TYPE", -32005, 415, "INVALID_ARGUMENT"
    default_message = "Unsupported media type or content encoding"


# Waystation's: state -------------------------------------------------------------------------------------------------


class NotFound(WaystationError):
    """Unknown, foreign and malformed ids alike: one body (native-api.md)."""

    reason, jsonrpc_code, http_status, grpc_status = "NOT_FOUND", -32001, 404, "NOT_FOUND"
    default_message = "Not found, or not visible to this token"


class MethodNotAllowed(WaystationError):
    reason, jsonrpc_code, http_status, grpc_status = "METHOD_NOT_ALLOWED", -32601, 405, "UNIMPLEMENTED"
    default_message = "Method not allowed"


class Conflict(WaystationError):
    reason, jsonrpc_code, http_status, grpc_status = "CONFLICT", -32602, 409, "ABORTED"
    default_message = "Conflict"


class IdempotencyConflict(Conflict):
    reason = "IDEMPOTENCY_CONFLICT"
    default_message = "The same idempotency key was used before with another message"


class TaskBusy(Conflict):
    reason, jsonrpc_code = "TASK_BUSY", -32004
    default_message = "The task is working and rejects further messages meanwhile"


class LeaseLost(Conflict):
    reason = "LEASE_LOST"
    default_message = "The lease has ended"


class TaskTerminal(Conflict):
    reason = "TASK_TERMINAL"
    default_message = "The task has already reached a terminal state"


class ProducerEventConflict(Conflict):
    reason = "PRODUCER_EVENT_CONFLICT"
    default_message = "The same producerEventId was used before with another body"


class AgentIdTaken(Conflict):
    reason = "AGENT_ID_TAKEN"
    default_message = "This agent id is taken"


class AgentBusy(Conflict):
    reason = "AGENT_BUSY"
    default_message = "The agent has live tasks; delete with ?force=true to fail them"


class PreconditionFailed(Conflict):
    reason, http_status, grpc_status = "PRECONDITION_FAILED", 412, "FAILED_PRECONDITION"
    default_message = "If-Match does not match the current ETag"


# Waystation's: capacity ----------------------------------------------------------------------------------------------


class TooManyRequests(WaystationError):
    reason, jsonrpc_code, http_status, grpc_status = "RESOURCE_EXHAUSTED", -32603, 429, "RESOURCE_EXHAUSTED"
    default_message = "Too many requests"


class Unavailable(WaystationError):
    """PostgreSQL (or the identity provider) cannot be reached, or the outcome is unknown: resend with the same ids."""

    reason, jsonrpc_code, http_status, grpc_status = "UNAVAILABLE", -32603, 503, "UNAVAILABLE"
    default_message = "Temporarily unavailable; retry with the same ids"
