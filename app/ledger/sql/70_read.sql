-- Reads that are hot enough to be one round trip. Each is one statement, so it sees one point of the log.

-- The task's row, its queue row, its snapshot and the events after that; one row, or none for an unknown task.
CREATE OR REPLACE FUNCTION task_read(p_tenant text, p_task uuid)
RETURNS TABLE (agent_id text, context_id text, state smallint, fence int, attempt smallint, turn_no int, turns_queued int,
  last_seq bigint, terminal_seq bigint, status_at timestamptz, created_at timestamptz, created_by text, priority smallint,
  worker text, lease_until timestamptz, run_at timestamptz, snapshot_seq bigint, snapshot text, kinds text[], bodies text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM ledger_enter(p_tenant);
  RETURN QUERY
  SELECT t.agent_id, t.context_id, t.state, t.fence, t.attempt, t.turn_no, t.turns_queued, t.last_seq, t.terminal_seq,
    t.status_at, t.created_at, t.created_by, t.priority, q.worker, q.lease_until, q.run_at, s.seq, s.body, e.kinds, e.bodies
  FROM tasks t
  LEFT JOIN queue q ON q.tenant_id = p_tenant AND q.task_id = p_task
  LEFT JOIN task_snapshots s ON s.tenant_id = p_tenant AND s.task_id = p_task
  LEFT JOIN LATERAL (SELECT array_agg(x.kind ORDER BY x.seq) AS kinds, array_agg(x.body ORDER BY x.seq) AS bodies FROM events x
    WHERE x.tenant_id = p_tenant AND x.task_id = p_task AND x.seq > coalesce(s.seq, 0)) e ON true
  WHERE t.tenant_id = p_tenant AND t.task_id = p_task;
END $$;

CREATE OR REPLACE FUNCTION task_head(p_tenant text, p_task uuid)
RETURNS TABLE (agent_id text, context_id text, state smallint, fence int, attempt smallint, turn_no int, turns_queued int,
  last_seq bigint, terminal_seq bigint, status_at timestamptz, created_at timestamptz, created_by text, priority smallint,
  worker text, lease_until timestamptz, run_at timestamptz) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM ledger_enter(p_tenant);
  RETURN QUERY
  SELECT t.agent_id, t.context_id, t.state, t.fence, t.attempt, t.turn_no, t.turns_queued, t.last_seq, t.terminal_seq,
    t.status_at, t.created_at, t.created_by, t.priority, q.worker, q.lease_until, q.run_at
  FROM tasks t LEFT JOIN queue q ON q.tenant_id = p_tenant AND q.task_id = p_task
  WHERE t.tenant_id = p_tenant AND t.task_id = p_task;
END $$;

-- Events after a seq, in order, up to p_limit of them and about p_bytes of bodies (at least one): the bodies are as large
-- as workers like. The log's bounds stand in every row; a task without such events answers one row whose seq is NULL, an
-- unknown task none. Committed seqs are dense and never change, so all up to the bound read first are there.
CREATE OR REPLACE FUNCTION events_read(p_tenant text, p_task uuid, p_after bigint, p_limit int, p_bytes int)
RETURNS TABLE (task_last_seq bigint, task_terminal_seq bigint, task_state smallint, seq bigint, kind text, turn_no int,
  attempt smallint, actor_kind text, actor_id text, at timestamptz, body text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_bytes bigint := 0;
BEGIN
  PERFORM ledger_enter(p_tenant);
  SELECT t.last_seq, t.terminal_seq, t.state INTO task_last_seq, task_terminal_seq, task_state FROM tasks t
   WHERE t.tenant_id = p_tenant AND t.task_id = p_task;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  FOR seq, kind, turn_no, attempt, actor_kind, actor_id, at, body IN
    SELECT x.seq, x.kind, x.turn_no, x.attempt, x.actor_kind, x.actor_id, x.at, x.body FROM events x
     WHERE x.tenant_id = p_tenant AND x.task_id = p_task AND x.seq > p_after AND x.seq <= task_last_seq
     ORDER BY x.seq LIMIT p_limit LOOP
    v_bytes := v_bytes + octet_length(body);
    EXIT WHEN v_bytes > p_bytes AND v_bytes > octet_length(body);
    RETURN NEXT;
  END LOOP;
  IF v_bytes = 0 THEN
    RETURN NEXT;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION turn_read(p_tenant text, p_task uuid, p_turn int) RETURNS TABLE (turn_no int, state text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM ledger_enter(p_tenant);
  RETURN QUERY SELECT s.turn_no, s.state FROM turns s WHERE s.tenant_id = p_tenant AND s.task_id = p_task AND s.turn_no = p_turn;
END $$;

-- What a worker said first in a turn (the WORKING of a claim is the ledger's), with its body if that can be a direct reply,
-- and whether the turn is still open.
CREATE OR REPLACE FUNCTION turn_first_word(p_tenant text, p_task uuid, p_turn int)
RETURNS TABLE (open boolean, seq bigint, body text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM ledger_enter(p_tenant);
  RETURN QUERY
  SELECT n.state IN ('queued', 'running'), e.seq, CASE WHEN e.kind IN ('status', 'turn.ended') THEN e.body END
  FROM turns n
  LEFT JOIN LATERAL (SELECT x.seq, x.kind, x.body FROM events x
    WHERE x.tenant_id = p_tenant AND x.task_id = p_task AND x.seq > n.message_seq AND x.turn_no = p_turn
      AND x.body_hash IS NOT NULL ORDER BY x.seq LIMIT 1) e ON true
  WHERE n.tenant_id = p_tenant AND n.task_id = p_task AND n.turn_no = p_turn;
END $$;

-- Keeps the fold of events 1..p_seq. A slower reader never overwrites a later one.
CREATE OR REPLACE FUNCTION snapshot_keep(p_tenant text, p_task uuid, p_seq bigint, p_body text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ledger_enter(p_tenant);
  INSERT INTO task_snapshots AS s VALUES (p_tenant, p_task, p_seq, p_body)
  ON CONFLICT (tenant_id, task_id) DO UPDATE SET seq = excluded.seq, body = excluded.body WHERE s.seq < excluded.seq;
END $$;

-- Figures for gauges, over all tenants and without content.
CREATE OR REPLACE FUNCTION queue_figures() RETURNS TABLE (agent_id text, depth bigint, delayed bigint, running bigint,
  oldest_age_seconds double precision) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_at timestamptz := clock_timestamp();
BEGIN
  PERFORM set_config('app.dispatch', 'on', true);
  RETURN QUERY SELECT q.agent_id, count(*) FILTER (WHERE q.worker IS NULL), count(*) FILTER (WHERE q.worker IS NULL AND q.run_at > v_at),
    count(*) FILTER (WHERE q.worker IS NOT NULL),
    coalesce(extract(epoch FROM v_at - min(q.queued_at) FILTER (WHERE q.worker IS NULL AND q.run_at <= v_at)), 0)::double precision
  FROM queue q GROUP BY q.agent_id;
END $$;
