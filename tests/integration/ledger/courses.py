"""What may happen in a course of the state machine, how often, and with which arguments. Used by machine.py.

The values are few, so that they meet: the same message ids, producerEventIds, contexts and artifacts in both tenants.
"""

from typing import Any, LiteralString

from hypothesis import strategies as st

from app.ledger.inputs import TaskSettings
from app.protocol.states import TaskState
from tests.integration.ledger.model_task import Item

HOUR = 3600.0
PAST: dict[str, LiteralString] = {
    "lease_until": "UPDATE queue SET lease_until = clock_timestamp() - interval '1 s', lease_seconds = 0 "
    "WHERE tenant_id = $1 AND task_id = $2 AND worker IS NOT NULL",
    "signal_until": "UPDATE queue SET signal_until = clock_timestamp() - interval '1 s' "
    "WHERE tenant_id = $1 AND task_id = $2 AND signal IS NOT NULL",
    "run_at": "UPDATE queue SET run_at = clock_timestamp() - interval '1 s' "
    "WHERE tenant_id = $1 AND task_id = $2 AND run_at > clock_timestamp()",
    "deadline": "UPDATE queue SET deadline = clock_timestamp() - interval '1 s' "
    "WHERE tenant_id = $1 AND task_id = $2 AND deadline IS NOT NULL",
    "claim_by": "UPDATE queue SET claim_by = clock_timestamp() - interval '1 s' "
    "WHERE tenant_id = $1 AND task_id = $2 AND claim_by IS NOT NULL",
}

TENANTS, AGENTS, WORKERS = st.sampled_from("ab"), st.sampled_from("xxxxy"), st.sampled_from(["w1", "w2"])
SUBJECTS = st.sampled_from(["u1", "u1", "u2"])
NUMBERS = st.one_of(st.just(0), st.integers(0, 2), st.integers(0, 30))
OFTEN = st.sampled_from([False, False, True])
MOSTLY, SELDOM = st.sampled_from([True] * 4 + [False]), st.sampled_from([False] * 9 + [True])
TEXTS = st.sampled_from(["one"] * 4 + ["two"])
HEADERS = st.sampled_from([None, None, None, "h1", "h2"])
EVENT_IDS = st.sampled_from([*[None] * 8, *(f"e{n}" for n in range(30))])
SETTINGS = st.builds(
    TaskSettings,
    max_attempts=st.sampled_from([3, 2, 1]),
    backoff_seconds=st.just(0),
    lease_seconds=st.just(HOUR),
    cancel_grace_seconds=st.sampled_from([0, HOUR]),
    on_busy=st.sampled_from(["enqueue"] * 6 + ["reject"]),
    deadline_seconds=st.sampled_from([None, HOUR]),
    queue_timeout_seconds=st.sampled_from([None, None, HOUR]),
    priority=st.sampled_from([5, 5, 9]),
    fair_key=st.sampled_from(["", "", "f"]),
    delay_seconds=st.sampled_from([0, 0, 0, HOUR]),
)
MORE_MESSAGES = st.sampled_from([0, 2, 1, 0, 3])
ENDING_STATES = st.sampled_from([
    *[TaskState.INPUT_REQUIRED] * 4, *[TaskState.COMPLETED] * 3, TaskState.AUTH_REQUIRED, None, TaskState.FAILED,
    TaskState.REJECTED, TaskState.CANCELED,
])  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> list[Item]:
    """Up to three chunks and statuses, and often an end; no producerEventId twice (the door refuses that)."""
    ids = iter(draw(st.lists(EVENT_IDS, min_size=4, max_size=4, unique_by=lambda event_id: event_id or object())))
    ends = draw(st.booleans())
    batch = [
        Item(next(ids), draw(TEXTS), None, draw(st.sampled_from("AAAB")), append=draw(OFTEN), last=draw(OFTEN))
        if draw(st.booleans())
        else Item(next(ids), draw(TEXTS), TaskState.WORKING)
        for _ in range(draw(st.integers(0 if ends else 1, 3)))
    ]
    if ends:
        batch.append(Item(next(ids), draw(TEXTS), draw(ENDING_STATES)))
    return batch


ACTIONS: dict[tuple[str, int], dict[str, st.SearchStrategy[Any]]] = {
    ("go_on", 30): {"number": NUMBERS, "batch": batches(), "settings": SETTINGS, "messages": MORE_MESSAGES},
    ("again", 10): {"number": NUMBERS},
    ("submit", 5): {
        "tenant": TENANTS, "subject": SUBJECTS, "agent": AGENTS, "number": st.integers(1, 4), "counts": MOSTLY,
        "header": HEADERS, "text": TEXTS, "context": st.sampled_from([None, None, None, "c1"]), "settings": SETTINGS,
    },
    ("send", 9): {
        "number": NUMBERS, "live": MOSTLY, "foreign": SELDOM, "other_agent": SELDOM, "subject": SUBJECTS,
        "message_number": st.integers(1, 6), "header": HEADERS, "text": TEXTS,
        "context": st.sampled_from(["none"] * 5 + ["its own", "its own", "another"]),
        "on_busy": st.sampled_from([None] * 6 + ["enqueue", "reject"]),
    },
    ("cancel", 5): {"number": NUMBERS, "live": MOSTLY, "leased": MOSTLY, "foreign": SELDOM},
    ("claim", 5): {
        "agent": AGENTS, "worker": WORKERS, "limit": st.sampled_from([1, 1, 2, 100]),
        "claim_id": st.sampled_from([None, "c1"]),
    },
    ("claim_again", 1): {"agent": AGENTS, "worker": WORKERS},
    ("write", 14): {"number": NUMBERS, "live": st.booleans(), "foreign": SELDOM, "batch": batches()},
    ("give_back", 6): {
        "number": NUMBERS, "live": MOSTLY, "foreign": SELDOM, "kind": st.sampled_from(["retry", "release"]),
        "delay": st.sampled_from([None, None, 0, HOUR]),
    },
    ("heartbeat", 4): {
        "numbers": st.lists(NUMBERS, min_size=1, max_size=3), "live": st.booleans(), "foreign": SELDOM,
        "extends": MOSTLY,
    },
    ("time_passes", 8): {
        "number": NUMBERS, "live": MOSTLY, "what": st.sampled_from(["lease_until"] * 3 + [*PAST]),
        "reap": st.sampled_from(["no", "too late", "at once", "at once"]),
    },
    ("reap", 3): {"at_once": MOSTLY},
    ("reap_late", 1): {},
    ("forget", 1): {"tenant": TENANTS},
    ("fail_deleted", 1): {"number": NUMBERS, "live": MOSTLY},
}  # fmt: skip
"""What may happen next: (the method, how often), and its arguments."""


def _steps(action: tuple[str, int]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(action[0]), st.fixed_dictionaries(ACTIONS[action]))


STEPS = st.sampled_from([action for action in ACTIONS for _ in range(action[1])]).flatmap(_steps)
