"""All Prometheus instruments of this process, in a registry of their own (one process per replica).

Whoever sees a thing happen counts it here; ``/metrics`` (transports/native/health.py) prints them. No label names a
tenant, a task or a URL, so the number of series does not grow with load (security.md, Metrics).
"""

import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from uuid import UUID

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from app.protocol.states import TaskState

CONTENT_TYPE = CONTENT_TYPE_LATEST
REGISTRY = CollectorRegistry()

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LONG = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)

REQUESTS = Counter(
    "waystation_requests", "Requests by route template or gRPC method", ["route", "method", "status"], registry=REGISTRY
)
TRANSITIONS = Counter(
    "waystation_task_transitions", "Task transitions by the state reached", ["state"], registry=REGISTRY
)
LEASES = Counter("waystation_leases", "Leases granted", registry=REGISTRY)
LEASE_EXPIRIES = Counter("waystation_lease_expiries", "Leases ended by the reaper: time ran out", registry=REGISTRY)
LEASES_GIVEN_BACK = Counter(
    "waystation_leases_given_back", "Leases released because their poller had gone", registry=REGISTRY
)
FENCE_REJECTIONS = Counter(
    "waystation_fence_rejections", "Worker calls refused because their lease had ended", registry=REGISTRY
)
TASKS_REPAIRED = Counter(
    "waystation_tasks_repaired", "Live tasks that had neither queue row nor lease, queued again", registry=REGISTRY
)
RACES_LOST = Counter(
    "waystation_races_lost", "Writes refused because another terminal state had won", registry=REGISTRY
)
STREAMS_OPEN = Gauge("waystation_streams_open", "Open event streams", registry=REGISTRY)
POLLERS_WAITING = Gauge("waystation_pollers_waiting", "Worker requests that wait for a lease", registry=REGISTRY)
AUTH_FAILURES = Counter("waystation_auth_failures", "Refused credentials by reason", ["reason"], registry=REGISTRY)
OUTBOUND_CALLS = Counter(
    "waystation_outbound_calls",
    "Calls to other hosts by purpose and outcome: a class of status, refused, or why no answer came",
    ["purpose", "outcome"],
    registry=REGISTRY,
)
DELIVERIES = Counter(
    "waystation_deliveries", "Push notifications by outcome: delivered, retried, dead", ["outcome"], registry=REGISTRY
)
DELIVERIES_DUE = Gauge("waystation_deliveries_due", "Push notifications that wait to be sent now", registry=REGISTRY)
DELIVERIES_OLDEST = Gauge(
    "waystation_deliveries_oldest_age_seconds", "How long the oldest of them has been due", registry=REGISTRY
)
WAKEUPS_CONNECTED = Gauge("waystation_wakeups_connected", "1 while the LISTEN connection lives", registry=REGISTRY)

QUEUE_DEPTH = Gauge("waystation_queue_depth", "Tasks that wait for a worker", ["agent"], registry=REGISTRY)
QUEUE_DELAYED = Gauge("waystation_queue_delayed", "Tasks queued for a later time", ["agent"], registry=REGISTRY)
QUEUE_OLDEST = Gauge(
    "waystation_queue_oldest_age_seconds", "Age of the oldest claimable task", ["agent"], registry=REGISTRY
)
LEASES_HELD = Gauge("waystation_leases_held", "Leases held now", ["agent"], registry=REGISTRY)

POOL_WAIT_SECONDS = Histogram(
    "waystation_pool_wait_seconds", "Wait for a pooled database connection", buckets=_FAST, registry=REGISTRY
)
SUBMIT_SECONDS = Histogram(
    "waystation_submit_seconds", "A client message, from parsed to committed", buckets=_FAST, registry=REGISTRY
)
CLAIM_SECONDS = Histogram(
    "waystation_claim_seconds",
    "One claim of an agent's queue, from asked to committed",
    buckets=_FAST,
    registry=REGISTRY,
)
EVENT_DELIVERY_SECONDS = Histogram(
    "waystation_event_delivery_seconds", "An event, from commit to a live subscriber", buckets=_FAST, registry=REGISTRY
)
DELIVERY_SECONDS = Histogram(
    "waystation_delivery_seconds", "An event, from commit to a receiver's 2xx", buckets=_LONG, registry=REGISTRY
)
TASK_SECONDS = Histogram(
    "waystation_task_seconds", "A task, from submit to its terminal state", buckets=_LONG, registry=REGISTRY
)


@contextmanager
def timed(histogram: Histogram) -> Generator[None]:
    """Observe the seconds the block takes, unless it raises."""
    start = time.perf_counter()
    yield
    histogram.observe(time.perf_counter() - start)


def count_transition(state: TaskState, task_id: UUID | None = None) -> None:
    """Count a task that reached ``state``; a terminal one with its ``task_id`` gives the end-to-end time as well.

    A task's age comes from its UUIDv7 (RFC 9562 §5.7: 48 bits of milliseconds), so no read is needed.
    """
    TRANSITIONS.labels(state.name).inc()
    if state.is_terminal and task_id is not None:
        TASK_SECONDS.observe(max(0.0, time.time() - (task_id.int >> 80) / 1000))


def set_queue_figures(figures: Iterable[tuple[str, int, int, float, int]]) -> None:
    """Replace all queue gauges by (agent, depth, delayed, oldest age in seconds, leases held)."""
    for gauge in (QUEUE_DEPTH, QUEUE_DELAYED, QUEUE_OLDEST, LEASES_HELD):
        gauge.clear()
    for agent, depth, delayed, oldest, held in figures:
        QUEUE_DEPTH.labels(agent).set(depth)
        QUEUE_DELAYED.labels(agent).set(delayed)
        QUEUE_OLDEST.labels(agent).set(oldest)
        LEASES_HELD.labels(agent).set(held)


def render() -> bytes:
    """The Prometheus text form of all instruments."""
    return generate_latest(REGISTRY)
