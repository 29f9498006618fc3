"""The tables, declared for Alembic, which compares them with the migrated database. Nothing else reads them.

What each table is for, and why it is shaped so:

tasks           one narrow row per task: state, fence, last seq. No payloads. Never partitioned.
events          the log: row (task, seq), append-only, range partitions of the UUIDv7 task id by month.
turns           one row per accepted client message: queued, running, paused, done, failed, canceled; one runs at most.
queue           live work only, so it stays small: one row per task that is waiting for or held by a worker.
lanes           fairness: one row per (tenant, agent, fair key) with its share and virtual time.
artifacts       which artifacts a task has and whether they still take chunks.
idempotency     which message a key stands for.
task_snapshots  a cache of the fold of events 1..seq, so that reading a long task stays cheap.
push_configs    which webhooks hear of a task's events; its token and credentials are sealed.
deliveries      the outbox: one row per config and event, written with the event. No content, like queue and lanes.
webhook_secrets what a tenant's notifications are signed with: one, two while it is rotated; sealed.
agents          registered destinations, with tombstones. Ids are unique in the deployment, like host names.
tenants, meta   content-free: which tenants exist; the incarnation of this database, which build's functions it has.

Every primary key starts with tenant_id (a global key tells who else uses it), except agents and the content-free two.
Task states are the numbers of ``a2a.proto``. All times are the database's, in milliseconds.
"""

from sqlalchemy import (
    REAL,
    TIMESTAMP,
    BigInteger,
    Boolean,
    Column,
    Computed,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    desc,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

metadata = MetaData()


def _key_text(name: str, *, primary_key: bool = True) -> Column[str]:
    """Text that is sorted when locks are taken: COLLATE "C", so that every process sorts alike."""
    return Column(name, Text(collation="C"), primary_key=primary_key, nullable=False)


def _time(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, TIMESTAMP(timezone=True), nullable=nullable)


tasks = Table(
    "tasks",
    metadata,
    _key_text("tenant_id"),
    Column("task_id", Uuid, primary_key=True),
    _key_text("agent_id", primary_key=False),
    Column("context_id", Text(collation="C"), nullable=False),
    _key_text("fair_key", primary_key=False),
    Column("priority", SmallInteger, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("fence", Integer, nullable=False, server_default=text("0")),
    Column("attempt", SmallInteger, nullable=False, server_default=text("0")),
    Column("turn_no", Integer, nullable=False, server_default=text("1")),
    Column("last_turn", Integer, nullable=False, server_default=text("1")),
    Column("turns_queued", Integer, nullable=False, server_default=text("0")),
    Column("last_seq", BigInteger, nullable=False),
    Column("terminal_seq", BigInteger),
    _time("status_at"),
    _time("created_at"),
    Column("created_by", Text, nullable=False),
    Column("on_busy", Text, nullable=False),
    Column("max_attempts", SmallInteger, nullable=False),
    Column("backoff_seconds", REAL, nullable=False),
    Column("max_backoff_seconds", REAL, nullable=False),
    Column("lease_seconds", REAL, nullable=False),
    Column("cancel_grace_seconds", REAL, nullable=False),
    Column("deadline_seconds", REAL),
    Column("queue_timeout_seconds", REAL),
    Column("ended_fence", Integer),
    Column("ended_kind", Text),
    Column("notifies", Boolean, nullable=False, server_default=text("false")),
    postgresql_with={"fillfactor": 70},
)
Index("tasks_by_status", tasks.c.tenant_id, desc(tasks.c.status_at), tasks.c.task_id)
Index("tasks_by_agent", tasks.c.tenant_id, tasks.c.agent_id, desc(tasks.c.status_at), tasks.c.task_id)
Index("tasks_by_context", tasks.c.tenant_id, tasks.c.context_id, desc(tasks.c.status_at), tasks.c.task_id)
Index("tasks_by_state", tasks.c.tenant_id, tasks.c.state, desc(tasks.c.status_at), tasks.c.task_id)

events = Table(
    "events",
    metadata,
    _key_text("tenant_id"),
    Column("task_id", Uuid, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("producer_event_id", Text(collation="C")),
    Column("body_hash", LargeBinary),
    Column("turn_no", Integer, nullable=False),
    Column("attempt", SmallInteger, nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor_id", Text, nullable=False),
    _time("at"),
    Column("body", Text, nullable=False),
    postgresql_partition_by="RANGE (task_id)",
)
Index(
    "events_by_producer",
    events.c.tenant_id,
    events.c.task_id,
    events.c.producer_event_id,
    unique=True,
    postgresql_where=events.c.producer_event_id.is_not(None),
)

turns = Table(
    "turns",
    metadata,
    _key_text("tenant_id"),
    Column("task_id", Uuid, primary_key=True),
    Column("turn_no", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("message_seq", BigInteger, nullable=False),
    _time("created_at"),
    _time("ended_at", nullable=True),
    postgresql_with={"fillfactor": 70},
)
Index("turns_running", turns.c.tenant_id, turns.c.task_id, unique=True, postgresql_where=turns.c.state == "running")

queue = Table(
    "queue",
    metadata,
    _key_text("tenant_id"),
    Column("task_id", Uuid, primary_key=True),
    _key_text("agent_id", primary_key=False),
    _key_text("fair_key", primary_key=False),
    Column("priority", SmallInteger, nullable=False),
    _time("queued_at"),
    _time("run_at"),
    _time("deadline", nullable=True),
    _time("claim_by", nullable=True),
    Column("fence", Integer, nullable=False),
    Column("worker", Text(collation="C")),
    Column("claim_id", Text(collation="C")),
    _time("lease_until", nullable=True),
    Column("lease_seconds", REAL, nullable=False),
    Column("signal", Text),
    _time("signal_until", nullable=True),
    postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 1000},
)
Index(
    "queue_ready",
    queue.c.agent_id,
    queue.c.tenant_id,
    queue.c.fair_key,
    desc(queue.c.priority),
    queue.c.run_at,
    queue.c.task_id,
    postgresql_where=queue.c.worker.is_(None),
)
# lease_until is in no index, so that a heartbeat stays a HOT update; the reaper reads the held rows page by page.
Index("queue_held", queue.c.tenant_id, queue.c.task_id, postgresql_where=queue.c.worker.is_not(None))
Index("queue_claims", queue.c.agent_id, queue.c.claim_id, postgresql_where=queue.c.claim_id.is_not(None))
Index(
    "queue_limited",
    queue.c.tenant_id,
    queue.c.task_id,
    postgresql_where=text("deadline IS NOT NULL OR claim_by IS NOT NULL"),
)

lanes = Table(
    "lanes",
    metadata,
    _key_text("tenant_id"),
    _key_text("agent_id"),
    _key_text("fair_key"),
    Column("weight", REAL, nullable=False, server_default=text("1")),
    Column("vtime", Double, nullable=False, server_default=text("0")),
    Column("woke", Boolean, nullable=False, server_default=text("true")),
    Column("max_running", Integer),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 1000},
)
Index("lanes_by_agent", lanes.c.agent_id)

artifacts = Table(
    "artifacts",
    metadata,
    _key_text("tenant_id"),
    Column("task_id", Uuid, primary_key=True),
    Column("artifact_id", Text(collation="C"), primary_key=True),
    Column("closed", Boolean, nullable=False),
    postgresql_with={"fillfactor": 70},
)

idempotency = Table(
    "idempotency",
    metadata,
    _key_text("tenant_id"),
    _key_text("subject"),
    _key_text("agent_id"),
    _key_text("kind"),
    _key_text("key"),
    Column("request_hash", LargeBinary, nullable=False),
    Column("task_id", Uuid, nullable=False),
    Column("turn_no", Integer, nullable=False),
    _time("expires_at"),
    postgresql_with={"fillfactor": 70},
)

task_snapshots = Table(
    "task_snapshots",
    metadata,
    _key_text("tenant_id"),
    Column("task_id", Uuid, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)

push_configs = Table(
    "push_configs",
    metadata,
    _key_text("tenant_id"),
    Column("task_id", Uuid, primary_key=True),
    _key_text("config_id"),
    Column("url", Text, nullable=False),
    Column("scheme", Text),
    Column("secret", LargeBinary),
    _key_text("destination", primary_key=False),
    Column("from_seq", BigInteger, nullable=False),
    _time("created_at"),
    Column("created_by", Text, nullable=False),
)

# due_at is set for what may be sent: of each (task, config) the lowest pending seq, and redeliveries. A claim moves it
# ahead by as long as the sender may take, so that what is being sent is no part of what is due.
deliveries = Table(
    "deliveries",
    metadata,
    _key_text("tenant_id"),
    Column("task_id", Uuid, primary_key=True),
    _key_text("config_id"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    _key_text("destination", primary_key=False),
    Column("state", Text(collation="C"), nullable=False, server_default=text("'pending'")),
    Column("redelivery", Boolean, nullable=False, server_default=text("false")),
    _time("due_at", nullable=True),
    Column("fence", Integer, nullable=False, server_default=text("0")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("last_status", Integer),
    Column("last_error", Text),
    _time("created_at"),
    _time("ended_at", nullable=True),
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 1000},
)
Index(
    "deliveries_due",
    deliveries.c.tenant_id,
    deliveries.c.destination,
    deliveries.c.due_at,
    postgresql_where=text("due_at IS NOT NULL"),
)
Index("deliveries_due_first", deliveries.c.due_at, postgresql_where=text("due_at IS NOT NULL"))
Index(
    "deliveries_by_state",
    deliveries.c.tenant_id,
    deliveries.c.state,
    deliveries.c.task_id,
    deliveries.c.config_id,
    deliveries.c.seq,
)

webhook_secrets = Table(
    "webhook_secrets",
    metadata,
    _key_text("tenant_id"),
    _key_text("secret_id"),
    Column("sealed", LargeBinary, nullable=False),
    _time("created_at"),
    _time("expires_at", nullable=True),
)

agents = Table(
    "agents",
    metadata,
    _key_text("agent_id"),
    _key_text("tenant_id", primary_key=False),
    Column("config", Text, nullable=False),
    Column("shared_with", ARRAY(Text(collation="C")), nullable=False),
    Column("revision", BigInteger, nullable=False),
    _time("created_at"),
    _time("updated_at"),
    _time("deleted_at", nullable=True),
    Column(
        "card_public",
        Boolean,
        Computed("coalesce(config::jsonb ->> 'cardVisibility'::text = 'public'::text, false)", persisted=True),
        nullable=False,
    ),
)
Index("agents_by_tenant", agents.c.tenant_id, agents.c.agent_id)
Index("agents_public", agents.c.agent_id, postgresql_where=text("card_public AND deleted_at IS NULL"))

tenants = Table("tenants", metadata, _key_text("tenant_id"))

meta = Table(
    "meta",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true")),
    Column("incarnation", Integer, nullable=False, server_default=text("1")),
    Column("functions", Text, nullable=False, server_default=text("''")),
)
