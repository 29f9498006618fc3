"""Cells of the table without a row: what is tested elsewhere, and what cannot occur."""

from app.operations.registry import BY_NAME

ELSEWHERE = {
    "PARSE_ERROR": "tests/contract/test_bad_input.py::test_json_that_is_refused",
    "INVALID_REQUEST": "tests/contract/test_envelopes.py::test_json_rpc_envelope",
    "METHOD_NOT_FOUND": "tests/contract/test_envelopes.py::test_json_rpc_envelope",
    "METHOD_NOT_ALLOWED": "tests/contract/test_envelopes.py::test_a_method_that_a_path_does_not_have",
    "PAYLOAD_TOO_LARGE": (
        "tests/contract/test_bad_input.py::test_a_body_over_the_limit_is_413_whether_declared_or_counted"
    ),
    "UNSUPPORTED_MEDIA_TYPE": "tests/contract/test_bad_input.py::test_content_encoding_is_415",
    "HEADERS_TOO_LARGE": "tests/contract/test_bad_input.py::test_headers_over_the_limits_are_431",
    "REQUEST_TIMEOUT": "tests/contract/test_error_rendering.py::test_a_body_that_does_not_come_is_408",
    "INTERNAL_ERROR": (
        "tests/contract/test_error_rendering.py::test_an_unknown_error_shows_a_correlation_id_and_never_its_text"
    ),
    "UNAVAILABLE": "tests/contract/test_outage.py::test_every_operation_is_unavailable_while_postgresql_is_away",
}
"""Reasons that a door gives before it looks at the operation, or whatever the operation: where they are tested."""

OTHERS_REASONS = (
    "INVALID_TRANSITION", "ARTIFACT_UNKNOWN", "ARTIFACT_CLOSED", "LEASE_LOST", "TASK_TERMINAL",
    "PRODUCER_EVENT_CONFLICT", "AGENT_ID_TAKEN", "AGENT_BUSY", "PRECONDITION_FAILED", "CONFLICT",
)  # fmt: skip
_NOBODY = dict.fromkeys(BY_NAME, "only a worker's or an operator's call can be refused with it")
SENDS = frozenset({"SendMessage", "SendStreamingMessage"})
STREAMS = frozenset({"SendStreamingMessage", "SubscribeToTask"})
CONFIGS = frozenset(name for name in BY_NAME if "PushNotificationConfig" in name)
TASKS = frozenset({"GetTask", "CancelTask", "SubscribeToTask"})
CARD = frozenset({"GetExtendedAgentCard"})


def _only(why: str, *operations: frozenset[str]) -> dict[str, str]:
    """All operations but these cannot be refused so."""
    return {name: why for name in BY_NAME if not any(name in some for some in operations)}


CANNOT: dict[str, dict[str, str]] = {
    **dict.fromkeys(OTHERS_REASONS, _NOBODY),
    "INVALID_AGENT_RESPONSE": dict.fromkeys(BY_NAME, "of remote agents, which the broker does not call yet"),
    "TASK_NOT_FOUND": _only("names no task", SENDS, TASKS, CONFIGS),
    "TASK_NOT_CANCELABLE": _only("cancels nothing", frozenset({"CancelTask"})),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": _only("has no push config", SENDS, CONFIGS),
    "UNSUPPORTED_OPERATION": _only("always possible", SENDS, STREAMS, CARD),
    "CONTENT_TYPE_NOT_SUPPORTED": _only("brings no parts", SENDS),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": _only("is not about cards", CARD),
    "INVALID_PARAMS": {"GetExtendedAgentCard": "has no parameters"},
    "NOT_SUPPORTED": _only("has no options", SENDS),
    "IDEMPOTENCY_CONFLICT": _only("is no message", SENDS),
    "TASK_BUSY": _only("is no message", SENDS),
    "RESOURCE_EXHAUSTED": _only("is no stream", STREAMS),
}  # fmt: skip
