-- Leases: claim, heartbeat, and what is due. Claims and the reaper serve all tenants of an agent: queue and lanes hold no
-- content and admit 'app.dispatch'; what was picked is then written with exactly its tenants visible.

-- Leases up to p_limit ready tasks of an agent. Lane by lane in the order of virtual time (the least served first), each
-- lane's rows by priority and age; SKIP LOCKED throughout, so claimers never wait for each other. Lanes are FETCHed one at
-- a time: a FOR loop reads ahead and would lock lanes that it does not use.
-- A lane found empty is marked 'woke': until it has work again it costs one look into an index and no lock (an agent shared
-- with many tenants has thousands), then it starts level with the least served lane that has some, or the time it was idle
-- would let it crowd out all others. So is a lane without room.
-- What runs is counted in the queue, and only where there is a limit, so that no end of a lease ever writes a lane.
-- p_most, p_each: how many leases of the agent may be held in all, and how many of each tenant; NULL: no limit. They span
-- lanes, so claims of an agent that has one take turns.
CREATE OR REPLACE FUNCTION lease_claim(p_agent text, p_worker text, p_limit int, p_seconds real, p_claim text, p_most int, p_each int)
RETURNS TABLE (tenant_id text, task_id uuid, agent_id text, context_id text, fence int, attempt smallint, turn_no int,
  priority smallint, claimed_at timestamptz, queued_at timestamptz, expires_at timestamptz, deadline_at timestamptz,
  last_seq bigint, message_body text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_at timestamptz; v_lanes refcursor; l lanes; q record; v_floor double precision; v_taken int; v_room int;
  v_tenants text[] := '{}'; v_tasks uuid[] := '{}';
BEGIN
  PERFORM set_config('app.dispatch', 'on', true);
  IF p_most IS NOT NULL OR p_each IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(hashtextextended('claims of ' || p_agent, 0));
    p_limit := least(p_limit, agent_room(p_agent, p_most));
  END IF;
  v_at := date_trunc('milliseconds', clock_timestamp());
  v_floor := lanes_floor(p_agent);
  OPEN v_lanes FOR SELECT s.* FROM lanes s WHERE s.agent_id = p_agent AND NOT s.paused
      AND (NOT s.woke OR (SELECT true FROM queue q WHERE q.agent_id = p_agent AND q.tenant_id = s.tenant_id
                            AND q.fair_key = s.fair_key AND q.worker IS NULL LIMIT 1))
    ORDER BY CASE WHEN s.woke THEN greatest(s.vtime, v_floor) ELSE s.vtime END, s.woke DESC FOR NO KEY UPDATE SKIP LOCKED;
  LOOP
    EXIT WHEN cardinality(v_tasks) >= p_limit;
    FETCH v_lanes INTO l;
    EXIT WHEN NOT FOUND;
    v_taken := 0;
    v_room := greatest(0, least(p_limit - cardinality(v_tasks), lane_room(l, p_each, v_tenants)));
    FOR q IN SELECT s.tenant_id, s.task_id FROM queue s
              WHERE s.agent_id = p_agent AND s.tenant_id = l.tenant_id AND s.fair_key = l.fair_key AND s.worker IS NULL
                AND s.run_at <= v_at
              ORDER BY s.priority DESC, s.run_at, s.task_id LIMIT v_room FOR UPDATE SKIP LOCKED LOOP
      v_tenants := v_tenants || q.tenant_id; v_tasks := v_tasks || q.task_id; v_taken := v_taken + 1;
    END LOOP;
    IF v_taken > 0 THEN
      UPDATE lanes s SET woke = false,
        vtime = CASE WHEN s.woke THEN greatest(s.vtime, lanes_floor(p_agent)) ELSE s.vtime END
          + v_taken * lane_step(l)
       WHERE s.tenant_id = l.tenant_id AND s.agent_id = p_agent AND s.fair_key = l.fair_key;
    ELSIF NOT l.woke THEN
      UPDATE lanes s SET woke = true WHERE s.tenant_id = l.tenant_id AND s.agent_id = p_agent AND s.fair_key = l.fair_key;
    END IF;
  END LOOP;
  CLOSE v_lanes;
  PERFORM set_config('app.dispatch', 'off', true);
  PERFORM set_config('app.tenants', coalesce((SELECT ',' || string_agg(DISTINCT x, ',') || ',' FROM unnest(v_tenants) x), ''), true);
  FOR q IN SELECT x.tenant, x.task FROM unnest(v_tenants, v_tasks) x(tenant, task) ORDER BY x.tenant COLLATE "C", x.task LOOP
    RETURN QUERY SELECT * FROM lease_start(q.tenant, q.task, v_at, p_worker, p_seconds, p_claim);
  END LOOP;
END $$;

-- The virtual time of the least served lane that had work when it was last looked at.
CREATE OR REPLACE FUNCTION lanes_floor(p_agent text) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT min(vtime) FROM lanes WHERE agent_id = p_agent AND NOT woke);
END $$;

-- The virtual time that one task of l costs. Its tenant's share of the agent is the weight of the tenant's lane without a
-- key; that is divided by weight among the tenant's lanes that had work when they were last looked at, l among them. So it
-- does not grow with the number of fair keys.
CREATE OR REPLACE FUNCTION lane_step(l lanes) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE v_tenant double precision; v_busy double precision;
BEGIN
  SELECT coalesce(max(weight) FILTER (WHERE fair_key = ''), 1),
         sum(lane_weight(s)) FILTER (WHERE NOT woke OR fair_key = l.fair_key)
    INTO v_tenant, v_busy FROM lanes s WHERE tenant_id = l.tenant_id AND agent_id = l.agent_id;
  RETURN v_busy / lane_weight(l) / v_tenant;
END $$;

-- A lane's weight among its tenant's lanes.
CREATE OR REPLACE FUNCTION lane_weight(l lanes) RETURNS double precision LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE l.fair_key WHEN '' THEN 1 ELSE l.weight::double precision END $$;

-- How many more of an agent may run; NULL: no limit. The ORDER BY makes the planner read the small partial index.
CREATE OR REPLACE FUNCTION agent_room(p_agent text, p_most int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE WHEN p_most IS NOT NULL THEN p_most
    - (SELECT count(*) FROM (SELECT 1 FROM queue WHERE worker IS NOT NULL AND agent_id = p_agent
                              ORDER BY tenant_id, task_id LIMIT p_most) held) END;
END $$;

-- How many more of a lane may run; NULL: no limit. p_each: the agent's limit for each tenant; p_taken: the tenants of what
-- this claim has picked already. The caller holds the lane's row lock, so nobody else adds to it. The limit of the lane
-- without a key is that of all the tenant's lanes, so its lock is taken too; where another claim has it, this lane is left
-- to the next claim.
CREATE OR REPLACE FUNCTION lane_room(l lanes, p_each int, p_taken text[]) RETURNS int LANGUAGE plpgsql AS $$
DECLARE v_tenant int := l.max_running; v_own int;
BEGIN
  IF l.fair_key <> '' THEN
    IF l.max_running IS NOT NULL THEN
      v_own := l.max_running - (SELECT count(*) FROM queue WHERE tenant_id = l.tenant_id AND worker IS NOT NULL
                                  AND agent_id = l.agent_id AND fair_key = l.fair_key);
    END IF;
    SELECT max_running INTO v_tenant FROM lanes WHERE tenant_id = l.tenant_id AND agent_id = l.agent_id AND fair_key = '';
    IF v_tenant IS NOT NULL THEN
      PERFORM 1 FROM lanes WHERE tenant_id = l.tenant_id AND agent_id = l.agent_id AND fair_key = ''
        FOR NO KEY UPDATE SKIP LOCKED;
      IF NOT FOUND THEN
        RETURN 0;
      END IF;
    END IF;
  END IF;
  v_tenant := least(v_tenant, p_each);
  IF v_tenant IS NOT NULL THEN
    v_tenant := v_tenant - cardinality(array_positions(p_taken, l.tenant_id))
      - (SELECT count(*) FROM queue WHERE tenant_id = l.tenant_id AND worker IS NOT NULL AND agent_id = l.agent_id);
  END IF;
  RETURN least(v_own, v_tenant);
END $$;

-- One claimed row becomes a lease: fence + 1 on queue row and task, WORKING in the log, the turn running.
CREATE OR REPLACE FUNCTION lease_start(p_tenant text, p_task uuid, p_at timestamptz, p_worker text, p_seconds real, p_claim text)
RETURNS TABLE (tenant_id text, task_id uuid, agent_id text, context_id text, fence int, attempt smallint, turn_no int,
  priority smallint, claimed_at timestamptz, queued_at timestamptz, expires_at timestamptz, deadline_at timestamptz,
  last_seq bigint, message_body text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q queue; t tasks; v_first boolean;
BEGIN
  UPDATE queue s SET worker = p_worker, claim_id = p_claim, fence = s.fence + 1, claim_by = NULL,
    lease_seconds = coalesce(p_seconds, s.lease_seconds), lease_until = p_at + make_interval(secs => coalesce(p_seconds, s.lease_seconds))
   WHERE s.tenant_id = p_tenant AND s.task_id = p_task RETURNING * INTO q;
  SELECT * INTO t FROM tasks s WHERE s.tenant_id = p_tenant AND s.task_id = p_task AND s.fence = q.fence - 1
     AND NOT is_terminal(s.state) FOR NO KEY UPDATE;
  IF NOT FOUND THEN  -- cannot arise; raising would stop all work of the agent. A live task is queued again by the repair.
    RAISE WARNING 'queue and task disagree: %', p_task;
    DELETE FROM queue s WHERE s.tenant_id = p_tenant AND s.task_id = p_task;
    RETURN;
  END IF;
  v_first := t.attempt = 0;
  t := task_advance_locked(t, 2::smallint, 1 + v_first::int, p_at, 'claim', NULL, t.attempt + 1, NULL);
  IF v_first THEN
    UPDATE turns s SET state = 'running' WHERE s.tenant_id = p_tenant AND s.task_id = p_task AND s.turn_no = t.turn_no;
    PERFORM event_add(t, t.last_seq - 1, 'turn.started', p_at, 'broker', '', '{}');
  END IF;
  PERFORM event_add(t, t.last_seq, 'status', p_at, 'worker', p_worker, status_body(t, 2::smallint, p_at, NULL,
    broker_metadata(jsonb_build_object('turn', t.turn_no, 'attempt', t.attempt))));
  RETURN QUERY SELECT p_tenant, p_task, t.agent_id, t.context_id, t.fence, t.attempt, t.turn_no, t.priority, p_at,
    q.queued_at, q.lease_until, q.deadline, t.last_seq, turn_message(p_tenant, p_task, t.turn_no);
END $$;

CREATE OR REPLACE FUNCTION turn_message(p_tenant text, p_task uuid, p_turn int) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE v_seq bigint; v_body text;
BEGIN
  SELECT message_seq INTO v_seq FROM turns WHERE tenant_id = p_tenant AND task_id = p_task AND turn_no = p_turn;
  SELECT body INTO v_body FROM events WHERE tenant_id = p_tenant AND task_id = p_task AND seq = v_seq;
  RETURN v_body;
END $$;

-- The leases that a claimId has made and that still live: the answer to a claim whose answer was lost.
CREATE OR REPLACE FUNCTION lease_held(p_agent text, p_worker text, p_claim text)
RETURNS TABLE (tenant_id text, task_id uuid, agent_id text, context_id text, fence int, attempt smallint, turn_no int,
  priority smallint, claimed_at timestamptz, queued_at timestamptz, expires_at timestamptz, deadline_at timestamptz,
  last_seq bigint, message_body text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q queue;
BEGIN
  PERFORM set_config('app.dispatch', 'on', true);
  FOR q IN SELECT s.* FROM queue s WHERE s.agent_id = p_agent AND s.claim_id = p_claim AND s.worker = p_worker LOOP
    PERFORM set_config('app.tenants', ',' || q.tenant_id || ',', true);
    RETURN QUERY SELECT t.tenant_id, t.task_id, t.agent_id, t.context_id, t.fence, t.attempt, t.turn_no, t.priority,
      t.status_at, q.queued_at, q.lease_until, q.deadline, t.last_seq, turn_message(t.tenant_id, t.task_id, t.turn_no)
     FROM tasks t WHERE t.tenant_id = q.tenant_id AND t.task_id = q.task_id AND t.fence = q.fence;
  END LOOP;
END $$;

-- Extends leases; the arrays are parallel and sorted by (tenant, task), so that two batches lock in one order.
-- A lease whose clock has passed but that nobody has reaped yet lives on. p_seconds 0 only looks: it neither
-- extends nor shortens.
CREATE OR REPLACE FUNCTION lease_heartbeat(p_tenants text[], p_tasks uuid[], p_fences int[], p_seconds real)
RETURNS TABLE (ok boolean, expires_at timestamptz, signal text, state smallint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_at timestamptz;
BEGIN
  FOR i IN 1..cardinality(p_tasks) LOOP
    v_at := ledger_enter(p_tenants[i]);
    state := NULL;
    IF p_seconds = 0 THEN
      SELECT s.lease_until, s.signal INTO expires_at, signal FROM queue s
       WHERE s.tenant_id = p_tenants[i] AND s.task_id = p_tasks[i] AND s.fence = p_fences[i] AND s.worker IS NOT NULL;
    ELSE
      UPDATE queue s SET lease_until = v_at + make_interval(secs => coalesce(p_seconds, s.lease_seconds))
       WHERE s.tenant_id = p_tenants[i] AND s.task_id = p_tasks[i] AND s.fence = p_fences[i] AND s.worker IS NOT NULL
      RETURNING s.lease_until, s.signal INTO expires_at, signal;
    END IF;
    ok := FOUND;
    IF NOT ok THEN
      expires_at := NULL; signal := NULL;
      SELECT s.state INTO state FROM tasks s WHERE s.tenant_id = p_tenants[i] AND s.task_id = p_tasks[i];
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- What the reaper has to end, by the database's clock. The ORDER BY makes the planner read the small partial indexes.
-- p_healthy: for how many seconds the asker has had this database without a break. While the database was away workers
-- could not heartbeat, so a lease expires only when it could be kept for its whole length (ledger.md, Fence).
CREATE OR REPLACE FUNCTION lease_due(p_limit int, p_healthy double precision) RETURNS TABLE (tenant_id text, task_id uuid, fence int, kind text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_at timestamptz := clock_timestamp();
  v_healthy double precision := least(p_healthy, extract(epoch FROM v_at - pg_postmaster_start_time()));
BEGIN
  PERFORM set_config('app.dispatch', 'on', true);
  RETURN QUERY SELECT s.tenant_id, s.task_id, s.fence, CASE WHEN s.signal_until <= v_at THEN s.signal ELSE 'expired' END
    FROM queue s WHERE s.worker IS NOT NULL
      AND (s.lease_until < v_at AND s.lease_seconds <= v_healthy OR s.signal_until <= v_at)
    ORDER BY s.tenant_id, s.task_id LIMIT p_limit;
  RETURN QUERY SELECT s.tenant_id, s.task_id, s.fence, CASE WHEN s.claim_by <= v_at THEN 'queue_timeout' ELSE 'deadline' END
    FROM queue s WHERE (s.deadline IS NOT NULL OR s.claim_by IS NOT NULL)
      AND (s.claim_by <= v_at OR s.deadline <= v_at AND s.signal IS NULL)
    ORDER BY s.tenant_id, s.task_id LIMIT p_limit;
END $$;
