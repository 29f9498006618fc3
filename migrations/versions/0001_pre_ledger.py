"""The spine: tasks and their log, turns, queue, lanes, idempotency, agents; row level security; the application's role.

Revision ID: 0001_pre
"""

from alembic import op

from app.ledger.migrations import run_script

revision = "0001_pre"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE tasks (
  tenant_id TEXT COLLATE "C" NOT NULL,
  task_id UUID NOT NULL,
  agent_id TEXT COLLATE "C" NOT NULL,
  context_id TEXT COLLATE "C" NOT NULL,
  fair_key TEXT COLLATE "C" NOT NULL,
  priority SMALLINT NOT NULL,
  state SMALLINT NOT NULL,
  fence INTEGER DEFAULT 0 NOT NULL,
  attempt SMALLINT DEFAULT 0 NOT NULL,
  turn_no INTEGER DEFAULT 1 NOT NULL,
  last_turn INTEGER DEFAULT 1 NOT NULL,
  turns_queued INTEGER DEFAULT 0 NOT NULL,
  last_seq BIGINT NOT NULL,
  terminal_seq BIGINT,
  status_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by TEXT NOT NULL,
  on_busy TEXT NOT NULL,
  max_attempts SMALLINT NOT NULL,
  backoff_seconds REAL NOT NULL,
  max_backoff_seconds REAL NOT NULL,
  lease_seconds REAL NOT NULL,
  cancel_grace_seconds REAL NOT NULL,
  deadline_seconds REAL,
  queue_timeout_seconds REAL,
  ended_fence INTEGER,
  ended_kind TEXT,
  PRIMARY KEY (tenant_id, task_id)
)
 WITH (fillfactor = 70);

CREATE INDEX tasks_by_agent ON tasks (tenant_id, agent_id, status_at DESC, task_id);

CREATE INDEX tasks_by_context ON tasks (tenant_id, context_id, status_at DESC, task_id);

CREATE INDEX tasks_by_state ON tasks (tenant_id, state, status_at DESC, task_id);

CREATE INDEX tasks_by_status ON tasks (tenant_id, status_at DESC, task_id);

CREATE TABLE events (
  tenant_id TEXT COLLATE "C" NOT NULL,
  task_id UUID NOT NULL,
  seq BIGINT NOT NULL,
  kind TEXT NOT NULL,
  producer_event_id TEXT COLLATE "C",
  body_hash BYTEA,
  turn_no INTEGER NOT NULL,
  attempt SMALLINT NOT NULL,
  actor_kind TEXT NOT NULL,
  actor_id TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (tenant_id, task_id, seq)
)
 PARTITION BY RANGE (task_id);

CREATE UNIQUE INDEX events_by_producer ON events (tenant_id, task_id, producer_event_id)
  WHERE producer_event_id IS NOT NULL;

CREATE TABLE turns (
  tenant_id TEXT COLLATE "C" NOT NULL,
  task_id UUID NOT NULL,
  turn_no INTEGER NOT NULL,
  state TEXT NOT NULL,
  message_seq BIGINT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (tenant_id, task_id, turn_no)
)
 WITH (fillfactor = 70);

CREATE UNIQUE INDEX turns_running ON turns (tenant_id, task_id) WHERE state = 'running';

CREATE TABLE queue (
  tenant_id TEXT COLLATE "C" NOT NULL,
  task_id UUID NOT NULL,
  agent_id TEXT COLLATE "C" NOT NULL,
  fair_key TEXT COLLATE "C" NOT NULL,
  priority SMALLINT NOT NULL,
  queued_at TIMESTAMP WITH TIME ZONE NOT NULL,
  run_at TIMESTAMP WITH TIME ZONE NOT NULL,
  deadline TIMESTAMP WITH TIME ZONE,
  claim_by TIMESTAMP WITH TIME ZONE,
  fence INTEGER NOT NULL,
  worker TEXT COLLATE "C",
  claim_id TEXT COLLATE "C",
  lease_until TIMESTAMP WITH TIME ZONE,
  lease_seconds REAL NOT NULL,
  signal TEXT,
  signal_until TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (tenant_id, task_id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX queue_claims ON queue (agent_id, claim_id) WHERE claim_id IS NOT NULL;

CREATE INDEX queue_held ON queue (tenant_id, task_id) WHERE worker IS NOT NULL;

CREATE INDEX queue_limited ON queue (tenant_id, task_id) WHERE deadline IS NOT NULL OR claim_by IS NOT NULL;

CREATE INDEX queue_ready ON queue (agent_id, tenant_id, fair_key, priority DESC, run_at, task_id) WHERE worker IS NULL;

CREATE TABLE lanes (
  tenant_id TEXT COLLATE "C" NOT NULL,
  agent_id TEXT COLLATE "C" NOT NULL,
  fair_key TEXT COLLATE "C" NOT NULL,
  weight REAL DEFAULT 1 NOT NULL,
  vtime DOUBLE PRECISION DEFAULT 0 NOT NULL,
  woke BOOLEAN DEFAULT true NOT NULL,
  max_running INTEGER,
  paused BOOLEAN DEFAULT false NOT NULL,
  PRIMARY KEY (tenant_id, agent_id, fair_key)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX lanes_by_agent ON lanes (agent_id);

CREATE TABLE artifacts (
  tenant_id TEXT COLLATE "C" NOT NULL,
  task_id UUID NOT NULL,
  artifact_id TEXT COLLATE "C" NOT NULL,
  closed BOOLEAN NOT NULL,
  PRIMARY KEY (tenant_id, task_id, artifact_id)
)
 WITH (fillfactor = 70);

CREATE TABLE idempotency (
  tenant_id TEXT COLLATE "C" NOT NULL,
  subject TEXT COLLATE "C" NOT NULL,
  agent_id TEXT COLLATE "C" NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  key TEXT COLLATE "C" NOT NULL,
  request_hash BYTEA NOT NULL,
  task_id UUID NOT NULL,
  turn_no INTEGER NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  PRIMARY KEY (tenant_id, subject, agent_id, kind, key)
)
 WITH (fillfactor = 70);

CREATE TABLE task_snapshots (
  tenant_id TEXT COLLATE "C" NOT NULL,
  task_id UUID NOT NULL,
  seq BIGINT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (tenant_id, task_id)
);

CREATE TABLE agents (
  agent_id TEXT COLLATE "C" NOT NULL,
  tenant_id TEXT COLLATE "C" NOT NULL,
  config TEXT NOT NULL,
  shared_with TEXT[] COLLATE "C" NOT NULL,
  revision BIGINT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
  deleted_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (agent_id)
);

CREATE INDEX agents_by_tenant ON agents (tenant_id, agent_id);

CREATE TABLE tenants (
  tenant_id TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id)
);

CREATE TABLE meta (
  one BOOLEAN DEFAULT true NOT NULL,
  incarnation INTEGER DEFAULT 1 NOT NULL,
  functions TEXT DEFAULT '' NOT NULL,
  PRIMARY KEY (one)
);
"""

# The application's role: no login of its own, no BYPASSRLS, not the owner of anything. Roles belong to the whole
# server, so another database's migration may be making it at this moment.
ROLE = """
DO $$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'waystation_app') THEN
    BEGIN
      CREATE ROLE waystation_app NOLOGIN NOBYPASSRLS;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
  END IF;
  IF NOT pg_has_role(current_user, 'waystation_app', 'MEMBER') THEN
    EXECUTE format('GRANT waystation_app TO %I', current_user);
  END IF;
END $$;
"""

# A transaction sees the tenants that it has named, and none when it has named none. queue and lanes hold no content:
# the claim and the reaper, which serve all tenants, see them under app.dispatch too. No policy raises: it would tell.
POLICIES = """
DO $$
DECLARE
  t text;
  mine text := $q$strpos(current_setting('app.tenants', true), ',' || tenant_id || ',') > 0$q$;
BEGIN
  FOREACH t IN ARRAY ARRAY['tasks', 'events', 'turns', 'artifacts', 'idempotency', 'task_snapshots', 'queue', 'lanes',
                           'agents'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY; ALTER TABLE %1$I FORCE ROW LEVEL SECURITY', t);
    IF t IN ('queue', 'lanes') THEN
      EXECUTE format($q$CREATE POLICY tenant ON %I USING (%s OR current_setting('app.dispatch', true) = 'on')$q$,
                     t, mine);
    ELSIF t = 'agents' THEN
      CREATE POLICY everyone_reads ON agents FOR SELECT USING (true);
      EXECUTE format('CREATE POLICY owner_inserts ON agents FOR INSERT WITH CHECK (%s)', mine);
      EXECUTE format('CREATE POLICY owner_updates ON agents FOR UPDATE USING (%s)', mine);
    ELSE
      EXECUTE format('CREATE POLICY tenant ON %I USING (%s)', t, mine);
    END IF;
  END LOOP;
END $$;
"""

# The log is append-only by grants. Partitions get no grant at all: the parent's policy does not apply on them.
GRANTS = """
GRANT USAGE ON SCHEMA public TO waystation_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON tasks, turns, artifacts, idempotency, task_snapshots, queue, lanes
  TO waystation_app;
GRANT SELECT, INSERT ON events, tenants TO waystation_app;
GRANT SELECT, INSERT, UPDATE ON agents TO waystation_app;
GRANT SELECT ON meta, alembic_version TO waystation_app;
"""

FIRST_ROWS = "INSERT INTO meta DEFAULT VALUES"


def upgrade() -> None:
    for script in (ROLE, TABLES, POLICIES, GRANTS, FIRST_ROWS):
        run_script(op.get_bind(), script)
