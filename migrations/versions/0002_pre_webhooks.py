"""Push notifications: configs, the outbox of their deliveries, the secrets that sign them; which tasks have configs
and which agents public cards.

Revision ID: 0002_pre
"""

from alembic import op

from app.ledger.migrations import run_script

revision = "0002_pre"
down_revision = "0001_pre"
branch_labels = None
depends_on = None

TABLES = """
ALTER TABLE tasks ADD COLUMN notifies BOOLEAN DEFAULT false NOT NULL;

CREATE TABLE push_configs (
  tenant_id TEXT COLLATE "C" NOT NULL,
  task_id UUID NOT NULL,
  config_id TEXT COLLATE "C" NOT NULL,
  url TEXT NOT NULL,
  scheme TEXT,
  secret BYTEA,
  destination TEXT COLLATE "C" NOT NULL,
  from_seq BIGINT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by TEXT NOT NULL,
  PRIMARY KEY (tenant_id, task_id, config_id)
);

CREATE TABLE deliveries (
  tenant_id TEXT COLLATE "C" NOT NULL,
  task_id UUID NOT NULL,
  config_id TEXT COLLATE "C" NOT NULL,
  seq BIGINT NOT NULL,
  destination TEXT COLLATE "C" NOT NULL,
  state TEXT COLLATE "C" DEFAULT 'pending' NOT NULL,
  redelivery BOOLEAN DEFAULT false NOT NULL,
  due_at TIMESTAMP WITH TIME ZONE,
  fence INTEGER DEFAULT 0 NOT NULL,
  attempts INTEGER DEFAULT 0 NOT NULL,
  last_status INTEGER,
  last_error TEXT,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (tenant_id, task_id, config_id, seq)
)
 WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX deliveries_by_state ON deliveries (tenant_id, state, task_id, config_id, seq);

CREATE INDEX deliveries_due ON deliveries (tenant_id, destination, due_at) WHERE due_at IS NOT NULL;

CREATE INDEX deliveries_due_first ON deliveries (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE webhook_secrets (
  tenant_id TEXT COLLATE "C" NOT NULL,
  secret_id TEXT COLLATE "C" NOT NULL,
  sealed BYTEA NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (tenant_id, secret_id)
);

ALTER TABLE agents ADD COLUMN card_public BOOLEAN NOT NULL
  GENERATED ALWAYS AS (coalesce(config::jsonb ->> 'cardVisibility' = 'public', false)) STORED;

CREATE INDEX agents_public ON agents (agent_id) WHERE card_public AND deleted_at IS NULL;
"""

# deliveries hold no content: the claim, which serves all tenants, sees them under app.dispatch too (as 0001 has it).
POLICIES = """
DO $$
DECLARE
  t text;
  mine text := $q$strpos(current_setting('app.tenants', true), ',' || tenant_id || ',') > 0$q$;
BEGIN
  FOREACH t IN ARRAY ARRAY['push_configs', 'deliveries', 'webhook_secrets'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY; ALTER TABLE %1$I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY tenant ON %I USING (%s%s)', t, mine,
                   CASE t WHEN 'deliveries' THEN $q$ OR current_setting('app.dispatch', true) = 'on'$q$ ELSE '' END);
  END LOOP;
END $$;
"""

GRANTS = "GRANT SELECT, INSERT, UPDATE, DELETE ON push_configs, deliveries, webhook_secrets TO waystation_app"


def upgrade() -> None:
    for script in (TABLES, POLICIES, GRANTS):
        run_script(op.get_bind(), script)
