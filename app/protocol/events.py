"""The kinds of ledger events (native-api.md, Readers), and which of them plain A2A clients see."""

from enum import StrEnum

RESUME_EXTENSION = "https://waystation.dev/ext/resume/v1"
"""The resume extension: what the broker adds to A2A objects stands in ``metadata[RESUME_EXTENSION]`` only."""

DIRECT_REPLY = "directReply"
"""In ``metadata[RESUME_EXTENSION]`` of a status event: the worker answered with a Message, and this is it."""


class EventKind(StrEnum):
    """What an event row is; its body is in parentheses."""

    TASK_SUBMITTED = "task.submitted"  # {"task"}: always seq 1, the Task with its first message
    MESSAGE_USER = "message.user"  # {"message"}
    STATUS = "status"  # {"statusUpdate"}
    ARTIFACT_DELTA = "artifact.delta"  # {"artifactUpdate"} with append=true
    ARTIFACT_REPLACE = "artifact.replace"  # {"artifactUpdate"} without append
    ARTIFACT_MERGED = "artifact.merged"  # {"artifactUpdate"} that compaction made of an artifact's deltas
    ACTION_REQUIRED = "action.required"  # {"statusUpdate", "actions"}
    ACTION_ANSWERED = "action.answered"
    TURN_STARTED = "turn.started"  # {}
    TURN_ENDED = "turn.ended"  # {"statusUpdate"}: COMPLETED while another turn was queued
    CANCEL_REQUESTED = "cancel.requested"  # {"statusUpdate"}
    EFFECT_CHANGED = "effect.changed"  # {"effect"}
    RESET = "reset"  # made for a reader whose cursor cannot be served; never stored


A2A_HIDDEN = frozenset(
    {EventKind.MESSAGE_USER, EventKind.TURN_STARTED, EventKind.ACTION_ANSWERED, EventKind.EFFECT_CHANGED}
)
"""Kinds that A2A doors do not show (native-api.md, What each transition appends); all others are StreamResponses."""
