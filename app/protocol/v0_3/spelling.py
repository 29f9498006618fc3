"""How A2A 0.3 spells its objects: the names that differ from 1.0's, and the two JSON forms of its bindings."""

from enum import Enum
from typing import Any, Final

Json = dict[str, Any]


class Spelling(Enum):
    """JSON-RPC carries 0.3's JSON objects (``kind``, ``parts``, ``user``, ``input-required``). HTTP+JSON carries the
    ProtoJSON of 0.3's ``a2a.proto`` (``content``, ``ROLE_USER``, ``TASK_STATE_INPUT_REQUIRED``); on input it may carry
    the JSON objects too, which are told apart by their ``kind``."""

    JSON = "json"
    PROTO = "proto"
    PROTO_TWICE = "proto-twice"
    """ProtoJSON whose file bytes are base64 of base64 text, as the official Python SDK writes and reads them."""


STATES: Final = {
    "TASK_STATE_SUBMITTED": "submitted",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
    "TASK_STATE_INPUT_REQUIRED": "input-required",
    "TASK_STATE_REJECTED": "rejected",
    "TASK_STATE_AUTH_REQUIRED": "auth-required",
}
"""1.0's names and 0.3's; a state of neither is ``unknown``."""

PROTO_CANCELED: Final = "TASK_STATE_CANCELLED"
"""0.3's ``a2a.proto`` writes it with two l; its other state names are 1.0's."""

ROLES: Final = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}

VALUE_PART: Final = "data_part_compat"
"""Metadata of a data part that is no object in 1.0: 0.3 has objects only, and such a value stands under ``value``."""
