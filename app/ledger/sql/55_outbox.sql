-- Push notifications: configs, and the outbox of their deliveries. A line is what one config has still to be told, in the
-- order of seqs; only its head is due. Locks: tasks before push_configs before deliveries; the sender's functions take no
-- task. Whoever writes a line holds its config's row, so a head is neither missed nor made twice.

-- The events p_first to p_last for each of the task's configs: all of a batch at once, for a worker's batch may have 1,000
-- and a task 32 configs. The caller holds the task's lock and has seen t.notifies.
CREATE OR REPLACE FUNCTION outbox_put(t tasks, p_first bigint, p_last bigint, p_at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE c record; v_waits boolean; v_due boolean := false;
BEGIN
  FOR c IN SELECT config_id, destination FROM push_configs WHERE tenant_id = t.tenant_id AND task_id = t.task_id
            ORDER BY config_id FOR NO KEY UPDATE LOOP
    v_waits := line_head(t.tenant_id, t.task_id, c.config_id) IS NOT NULL;
    INSERT INTO deliveries (tenant_id, task_id, config_id, seq, destination, due_at, created_at)
    SELECT t.tenant_id, t.task_id, c.config_id, v_seq, c.destination,
           CASE WHEN v_seq = p_first AND NOT v_waits THEN clock_timestamp() END, p_at
      FROM generate_series(p_first, p_last) v_seq;
    v_due := v_due OR NOT v_waits;
  END LOOP;
  IF v_due THEN
    PERFORM deliveries_are_due();
  END IF;
END $$;

-- A redelivery stands beside the line: it neither waits for the others nor holds them up.
CREATE OR REPLACE FUNCTION line_head(p_tenant text, p_task uuid, p_config text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT seq FROM deliveries WHERE tenant_id = p_tenant AND task_id = p_task AND config_id = p_config
            AND state = 'pending' AND NOT redelivery ORDER BY seq LIMIT 1);
END $$;

-- Tells the process whose transaction this is, which passes it on after the commit (pool.py). Not pg_notify: that takes a
-- global lock at commit.
CREATE OR REPLACE FUNCTION deliveries_are_due() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE NOTICE 'deliveries are due';
END $$;

-- Makes or replaces a config; the caller holds the task's lock. What is pending goes to the new URL, at once and with
-- tries of its own: what a sender has under way to the old one no longer counts. Only what is due is written, for any
-- number may wait behind it.
CREATE OR REPLACE FUNCTION push_config_put(t tasks, p_subject text, p_at timestamptz, p_config text, p_url text, p_scheme text,
    p_secret bytea, p_destination text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE push_configs SET url = p_url, scheme = p_scheme, secret = p_secret, destination = p_destination,
    created_at = p_at, created_by = p_subject
   WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND config_id = p_config;
  IF FOUND THEN
    UPDATE deliveries SET destination = p_destination, fence = fence + 1, attempts = 0, due_at = clock_timestamp()
     WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND config_id = p_config AND state = 'pending'
       AND due_at IS NOT NULL;
    IF FOUND THEN
      PERFORM deliveries_are_due();
    END IF;
    RETURN;
  ELSIF (SELECT count(*) FROM push_configs WHERE tenant_id = t.tenant_id AND task_id = t.task_id) >= 32 THEN
    RAISE EXCEPTION 'too many push notification configs' USING ERRCODE = 'WS006';
  END IF;
  INSERT INTO push_configs (tenant_id, task_id, config_id, url, scheme, secret, destination, from_seq, created_at, created_by)
  VALUES (t.tenant_id, t.task_id, p_config, p_url, p_scheme, p_secret, p_destination, t.last_seq + 1, p_at, p_subject);
  UPDATE tasks SET notifies = true WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND NOT notifies;
END $$;

-- SQLSTATEs: WS002 no such task of this agent, WS006 too many.
CREATE OR REPLACE FUNCTION push_config_create(p_tenant text, p_subject text, p_agent text, p_task uuid, p_config text, p_url text,
    p_scheme text, p_secret bytea, p_destination text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := ledger_enter(p_tenant); t tasks;
BEGIN
  SELECT * INTO t FROM tasks WHERE tenant_id = p_tenant AND task_id = p_task AND agent_id = p_agent FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no such task' USING ERRCODE = 'WS002';
  END IF;
  PERFORM push_config_put(t, p_subject, v_at, p_config, p_url, p_scheme, p_secret, p_destination);
END $$;

-- What was delivered or died stays in the list.
CREATE OR REPLACE FUNCTION push_config_delete(p_tenant text, p_task uuid, p_config text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ledger_enter(p_tenant);
  DELETE FROM push_configs WHERE tenant_id = p_tenant AND task_id = p_task AND config_id = p_config;
  DELETE FROM deliveries WHERE tenant_id = p_tenant AND task_id = p_task AND config_id = p_config AND state = 'pending';
END $$;

-- Takes up to p_limit due deliveries, receiver by receiver, and moves their due_at to the end of the hold: a sender that
-- dies lets go of them by that. A receiver is a tenant and a destination, 'tenant destination': so tenants that call one host
-- do not stand in each other's way. p_counts: how many the asker has under way to each of p_busy. Nothing of the receivers
-- in p_avoid and of the tenants in p_full. It ends with the body by which all together have p_bytes, however large that is.
-- The body of an event that is not kept any more is NULL.
-- As lease_claim has it: picked under 'app.dispatch', then written and read with exactly their tenants visible.
CREATE OR REPLACE FUNCTION deliveries_claim(p_limit int, p_bytes bigint, p_each int, p_busy text[], p_counts int[],
    p_avoid text[], p_full text[], p_hold double precision)
RETURNS TABLE (tenant_id text, task_id uuid, config_id text, seq bigint, fence int, attempt int, url text, scheme text,
  secret bytea, destination text, body bytea, age double precision)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_at timestamptz; r record; d record; v_room int; v_body bytea; v_bytes bigint := 0;
  v_tenants text[] := '{}'; v_tasks uuid[] := '{}'; v_configs text[] := '{}'; v_seqs bigint[] := '{}';
BEGIN
  PERFORM set_config('app.dispatch', 'on', true);
  v_at := clock_timestamp();
  FOR r IN SELECT x.tenant_id, x.destination, x.tenant_id || ' ' || x.destination AS receiver FROM receivers_due(v_at) x
            WHERE NOT x.tenant_id = ANY (p_full) AND NOT x.tenant_id || ' ' || x.destination = ANY (p_avoid)
            GROUP BY 1, 2 ORDER BY min(x.due_at) LOOP
    EXIT WHEN cardinality(v_tasks) >= p_limit;
    v_room := greatest(0, least(p_limit - cardinality(v_tasks),
                                p_each - coalesce(p_counts[array_position(p_busy, r.receiver)], 0)));
    FOR d IN SELECT s.tenant_id, s.task_id, s.config_id, s.seq FROM deliveries s
              WHERE s.tenant_id = r.tenant_id AND s.destination = r.destination AND s.due_at <= v_at
              ORDER BY s.due_at LIMIT v_room FOR UPDATE SKIP LOCKED LOOP
      v_tenants := v_tenants || d.tenant_id; v_tasks := v_tasks || d.task_id; v_configs := v_configs || d.config_id;
      v_seqs := v_seqs || d.seq;
    END LOOP;
  END LOOP;
  PERFORM set_config('app.dispatch', 'off', true);
  PERFORM set_config('app.tenants', coalesce((SELECT ',' || string_agg(DISTINCT x, ',') || ',' FROM unnest(v_tenants) x), ''), true);
  FOR i IN 1..cardinality(v_tasks) LOOP
    EXIT WHEN v_bytes >= p_bytes;
    UPDATE deliveries s SET due_at = v_at + make_interval(secs => p_hold), fence = s.fence + 1, attempts = s.attempts + 1
     WHERE s.tenant_id = v_tenants[i] AND s.task_id = v_tasks[i] AND s.config_id = v_configs[i] AND s.seq = v_seqs[i]
    RETURNING s.* INTO d;
    v_body := (SELECT convert_to(e.body, 'UTF8') FROM events e
                WHERE e.tenant_id = v_tenants[i] AND e.task_id = v_tasks[i] AND e.seq = v_seqs[i]);
    v_bytes := v_bytes + coalesce(length(v_body), 0);
    RETURN QUERY SELECT d.tenant_id, d.task_id, d.config_id, d.seq, d.fence, d.attempts, c.url, c.scheme, c.secret,
      d.destination, v_body, extract(epoch FROM v_at - d.created_at)::double precision
     FROM push_configs c WHERE c.tenant_id = v_tenants[i] AND c.task_id = v_tasks[i] AND c.config_id = v_configs[i];
  END LOOP;
END $$;

-- The receivers that have something due, some of them twice. As long as little is due, that itself tells. When it is much, as
-- it is for one that takes nothing, the others are looked for: one look into the index for each that has anything pending,
-- at most 1,000 of a tenant's, so that no tenant makes claims slow for all.
CREATE OR REPLACE FUNCTION receivers_due(p_at timestamptz) RETURNS TABLE (tenant_id text, destination text, due_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_found int; v_tenant text := ''; v_of_tenant int := 0;
BEGIN
  RETURN QUERY SELECT s.tenant_id, s.destination, s.due_at FROM deliveries s WHERE s.due_at <= p_at
               ORDER BY s.due_at LIMIT 1000;
  GET DIAGNOSTICS v_found = ROW_COUNT;
  IF v_found < 1000 THEN
    RETURN;
  END IF;
  tenant_id := ''; destination := '';
  LOOP
    IF v_of_tenant < 1000 THEN
      SELECT s.tenant_id, s.destination, s.due_at INTO tenant_id, destination, due_at FROM deliveries s
       WHERE s.due_at IS NOT NULL AND (s.tenant_id, s.destination) > (receivers_due.tenant_id, receivers_due.destination)
       ORDER BY s.tenant_id, s.destination, s.due_at LIMIT 1;
    ELSE
      SELECT s.tenant_id, s.destination, s.due_at INTO tenant_id, destination, due_at FROM deliveries s
       WHERE s.due_at IS NOT NULL AND s.tenant_id > receivers_due.tenant_id
       ORDER BY s.tenant_id, s.destination, s.due_at LIMIT 1;
    END IF;
    EXIT WHEN NOT FOUND;
    v_of_tenant := CASE WHEN receivers_due.tenant_id = v_tenant THEN v_of_tenant + 1 ELSE 1 END;
    v_tenant := receivers_due.tenant_id;
    IF receivers_due.due_at <= p_at THEN
      RETURN NEXT;
    END IF;
  END LOOP;
END $$;

-- How much is due now, and for how many seconds the oldest has been.
CREATE OR REPLACE FUNCTION deliveries_figures() RETURNS TABLE (due bigint, oldest double precision) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('app.dispatch', 'on', true);
  RETURN QUERY SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(d.due_at)), 0)::double precision
                 FROM deliveries d WHERE d.due_at <= clock_timestamp();
END $$;

-- Ends a delivery: p_state 'delivered' | 'dead'; the next of its line is due. False when the fence is not the last claim's,
-- or it has ended, or its config is gone.
CREATE OR REPLACE FUNCTION delivery_end(p_tenant text, p_task uuid, p_config text, p_seq bigint, p_fence int, p_state text,
    p_status int, p_error text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := ledger_enter(p_tenant);
BEGIN
  PERFORM 1 FROM push_configs WHERE tenant_id = p_tenant AND task_id = p_task AND config_id = p_config FOR NO KEY UPDATE;
  UPDATE deliveries SET state = p_state, due_at = NULL, last_status = p_status, last_error = p_error, ended_at = v_at
   WHERE tenant_id = p_tenant AND task_id = p_task AND config_id = p_config AND seq = p_seq AND fence = p_fence
     AND state = 'pending';
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM line_go_on(p_tenant, p_task, p_config, v_at);
  RETURN true;
END $$;

-- The head of a line is due, unless it was already, at its config's present destination. The caller holds the config's row.
CREATE OR REPLACE FUNCTION line_go_on(p_tenant text, p_task uuid, p_config text, p_at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE v_head bigint := line_head(p_tenant, p_task, p_config);
BEGIN
  UPDATE deliveries d SET due_at = p_at, destination = c.destination FROM push_configs c
   WHERE d.tenant_id = p_tenant AND d.task_id = p_task AND d.config_id = p_config AND d.seq = v_head AND d.due_at IS NULL
     AND c.tenant_id = p_tenant AND c.task_id = p_task AND c.config_id = p_config;
END $$;

-- For a receiver that does not answer: what is due to it and is older than p_older seconds is dead, and so is what waits
-- behind that. Nothing that is being sent. Up to p_limit lines, of each up to p_limit; how many are dead.
CREATE OR REPLACE FUNCTION deliveries_give_up(p_tenant text, p_destination text, p_older double precision, p_error text,
    p_limit int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := ledger_enter(p_tenant); v_before timestamptz := v_at - make_interval(secs => p_older);
  l record; v_of_line bigint; v_dead bigint := 0;
BEGIN
  FOR l IN SELECT DISTINCT x.task_id, x.config_id
             FROM (SELECT task_id, config_id FROM deliveries WHERE tenant_id = p_tenant AND destination = p_destination
                      AND due_at <= v_at AND created_at < v_before ORDER BY due_at LIMIT p_limit) x
            ORDER BY x.task_id, x.config_id LOOP
    PERFORM 1 FROM push_configs WHERE tenant_id = p_tenant AND task_id = l.task_id AND config_id = l.config_id
      FOR NO KEY UPDATE;
    UPDATE deliveries SET state = 'dead', due_at = NULL, last_error = p_error, ended_at = v_at
     WHERE tenant_id = p_tenant AND task_id = l.task_id AND config_id = l.config_id AND state = 'pending'
       AND created_at < v_before AND (due_at IS NULL OR due_at <= v_at AND destination = p_destination)
       AND seq <= (SELECT max(x.seq) FROM (SELECT s.seq FROM deliveries s WHERE s.tenant_id = p_tenant
                      AND s.task_id = l.task_id AND s.config_id = l.config_id AND s.state = 'pending'
                    ORDER BY s.seq LIMIT p_limit) x);
    GET DIAGNOSTICS v_of_line = ROW_COUNT;
    v_dead := v_dead + v_of_line;
    PERFORM line_go_on(p_tenant, l.task_id, l.config_id, v_at);
  END LOOP;
  RETURN v_dead;
END $$;

-- It did not arrive and is due again in p_delay seconds. False as above.
CREATE OR REPLACE FUNCTION delivery_retry(p_tenant text, p_task uuid, p_config text, p_seq bigint, p_fence int, p_status int,
    p_error text, p_delay double precision) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := ledger_enter(p_tenant);
BEGIN
  UPDATE deliveries SET due_at = v_at + make_interval(secs => p_delay), last_status = p_status, last_error = p_error
   WHERE tenant_id = p_tenant AND task_id = p_task AND config_id = p_config AND seq = p_seq AND fence = p_fence
     AND state = 'pending';
  RETURN FOUND;
END $$;

-- outcome: 'applied' | 'pending' (it has not ended) | 'missing' (no such delivery, or nobody to deliver to any more).
CREATE OR REPLACE FUNCTION delivery_redeliver(p_tenant text, p_task uuid, p_config text, p_seq bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := ledger_enter(p_tenant); c push_configs;
BEGIN
  SELECT * INTO c FROM push_configs WHERE tenant_id = p_tenant AND task_id = p_task AND config_id = p_config FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'missing';
  END IF;
  UPDATE deliveries SET state = 'pending', redelivery = true, due_at = v_at, attempts = 0, ended_at = NULL, destination = c.destination
   WHERE tenant_id = p_tenant AND task_id = p_task AND config_id = p_config AND seq = p_seq AND state <> 'pending';
  IF FOUND THEN
    PERFORM deliveries_are_due();
    RETURN 'applied';
  END IF;
  PERFORM 1 FROM deliveries WHERE tenant_id = p_tenant AND task_id = p_task AND config_id = p_config AND seq = p_seq;
  RETURN CASE WHEN FOUND THEN 'pending' ELSE 'missing' END;
END $$;

-- Forgets ended deliveries of a tenant, p_state 'delivered' | 'dead', that ended p_older seconds ago; at most p_limit, how
-- many. A task's id has its time, so of the younger tasks nothing is read.
CREATE OR REPLACE FUNCTION deliveries_purge(p_tenant text, p_state text, p_older double precision, p_limit int) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := ledger_enter(p_tenant) - make_interval(secs => p_older); d record; v_gone bigint := 0;
BEGIN
  FOR d IN SELECT task_id, config_id, seq FROM deliveries
            WHERE tenant_id = p_tenant AND state = p_state AND task_id < uuid_floor(v_at) AND ended_at < v_at
            ORDER BY task_id, config_id, seq LIMIT p_limit FOR UPDATE SKIP LOCKED LOOP
    DELETE FROM deliveries WHERE tenant_id = p_tenant AND task_id = d.task_id AND config_id = d.config_id AND seq = d.seq;
    v_gone := v_gone + 1;
  END LOOP;
  RETURN v_gone;
END $$;
