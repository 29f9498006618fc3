-- Leases that end otherwise than by their worker's last event, and cancels.

-- Takes the locks of a task in order: its queue row (q, all NULL without one), then its own row (t). A message may resume
-- the task between the two looks; then the transaction begins anew (40001), for its order forbids to lock the new row now.
CREATE OR REPLACE FUNCTION task_lock(p_tenant text, p_task uuid, OUT q queue, OUT t tasks) LANGUAGE plpgsql AS $$
BEGIN
  SELECT * INTO q FROM queue WHERE tenant_id = p_tenant AND task_id = p_task FOR UPDATE;
  SELECT * INTO t FROM tasks WHERE tenant_id = p_tenant AND task_id = p_task FOR NO KEY UPDATE;
  IF q.task_id IS NULL AND EXISTS (SELECT 1 FROM queue WHERE tenant_id = p_tenant AND task_id = p_task) THEN
    RAISE EXCEPTION 'task % was resumed meanwhile', p_task USING ERRCODE = '40001';
  END IF;
END $$;

-- outcome: 'canceled' (nobody held the task), 'pending' (its worker is asked; CANCELED is forced in seconds_left),
-- 'terminal' or 'missing'. A second cancel joins the first one's wait.
CREATE OR REPLACE FUNCTION task_cancel(p_tenant text, p_task uuid, p_subject text)
RETURNS TABLE (outcome text, state smallint, last_seq bigint, terminal_seq bigint, fence int, seconds_left double precision)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_at timestamptz := ledger_enter(p_tenant); k record; t tasks;
BEGIN
  SELECT * INTO k FROM task_lock(p_tenant, p_task);
  t := k.t; v_at := task_now(t);
  IF t.task_id IS NULL THEN
    outcome := 'missing'; RETURN NEXT; RETURN;
  ELSIF is_terminal(t.state) THEN
    outcome := 'terminal';
  ELSIF (k.q).worker IS NULL THEN
    t := task_end(t, 5::smallint, 0, v_at, NULL, 'client', p_subject, status_body(t, 5::smallint, v_at, NULL, NULL));
    outcome := 'canceled';
  ELSIF (k.q).signal = 'cancel' THEN
    outcome := 'pending'; seconds_left := extract(epoch FROM (k.q).signal_until - clock_timestamp());
  ELSE
    UPDATE queue s SET signal = 'cancel', signal_until = v_at + make_interval(secs => t.cancel_grace_seconds)
     WHERE s.tenant_id = p_tenant AND s.task_id = p_task;
    t := task_advance_locked(t, 2::smallint, 1, v_at, NULL, NULL, NULL, NULL);
    PERFORM event_add(t, t.last_seq, 'cancel.requested', v_at, 'client', p_subject, status_body(t, 2::smallint, v_at, NULL,
      broker_metadata(jsonb_build_object('cancelRequestedAt', rfc3339(v_at)))));
    outcome := 'pending'; seconds_left := t.cancel_grace_seconds;
  END IF;
  state := t.state; last_seq := t.last_seq; terminal_seq := t.terminal_seq; fence := t.fence;
  RETURN NEXT;
END $$;

-- A worker gives its lease back: 'retry' (it failed) or 'release' (it cannot do it now; the attempt is not counted).
-- outcome: 'applied' (also when repeated under the same fence) | 'terminal' | 'stale' | 'missing'.
CREATE OR REPLACE FUNCTION lease_return(p_tenant text, p_task uuid, p_fence int, p_kind text, p_error text, p_delay double precision)
RETURNS TABLE (outcome text, state smallint, last_seq bigint, terminal_seq bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_at timestamptz := ledger_enter(p_tenant); k record; t tasks;
BEGIN
  SELECT * INTO k FROM task_lock(p_tenant, p_task);
  t := k.t; v_at := task_now(t);
  IF t.task_id IS NULL THEN
    outcome := 'missing'; RETURN NEXT; RETURN;
  ELSIF t.ended_fence = p_fence AND t.ended_kind = p_kind THEN
    outcome := 'applied';
  ELSIF is_terminal(t.state) THEN
    outcome := 'terminal';
  ELSIF t.fence <> p_fence OR (k.q).worker IS NULL THEN
    outcome := 'stale';
  ELSE
    t := lease_requeue(t, k.q, v_at, p_kind, p_error, p_delay);
    outcome := 'applied';
  END IF;
  state := t.state; last_seq := t.last_seq; terminal_seq := t.terminal_seq;
  RETURN NEXT;
END $$;

-- The lease ends (p_kind: retry, release or expired): queued again, with full-jitter backoff unless a delay is given; FAILED
-- when the attempts are used up; CANCELED when a cancel is pending, for a canceled task is never leased again.
CREATE OR REPLACE FUNCTION lease_requeue(t tasks, q queue, p_at timestamptz, p_kind text, p_error text, p_delay double precision)
RETURNS tasks LANGUAGE plpgsql AS $$
DECLARE
  u tasks; v_delay double precision := p_delay; v_release boolean := p_kind = 'release';
  v_reason text := CASE p_kind WHEN 'retry' THEN 'RETRY' ELSE 'LEASE_EXPIRED' END;
BEGIN
  IF q.signal = 'cancel' THEN
    RETURN task_end(t, 5::smallint, 0, p_at, p_kind, 'broker', '', status_body(t, 5::smallint, p_at, NULL, NULL));
  ELSIF NOT v_release AND t.attempt >= t.max_attempts THEN
    RETURN task_fail(t, p_at, p_kind, 'ATTEMPTS_EXHAUSTED',
                     coalesce(p_error, 'The worker''s lease expired') || ' (attempt ' || t.attempt || ' of ' || t.max_attempts || ')');
  END IF;
  v_delay := coalesce(v_delay, CASE WHEN v_release THEN 0 ELSE
    random() * least(t.max_backoff_seconds, t.backoff_seconds * power(2::double precision, t.attempt - 1)) END);
  u := task_advance_locked(t, t.state, (NOT v_release)::int, p_at, p_kind, NULL, t.attempt - v_release::int, NULL);
  IF v_release AND u.attempt = 0 THEN
    UPDATE turns SET state = 'queued' WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND turn_no = t.turn_no;
  ELSIF NOT v_release THEN
    PERFORM event_add(u, u.last_seq, 'status', p_at, 'broker', '', status_body(u, 2::smallint, p_at, NULL, broker_metadata(
      jsonb_build_object('reason', v_reason, 'error', p_error, 'turn', u.turn_no, 'attempt', u.attempt))));
  END IF;
  PERFORM queue_return(u, p_at, p_at + make_interval(secs => v_delay), false);
  RETURN u;
END $$;

-- The broker fails a task, says why to people (the status message) and to programs (the reason in the metadata).
CREATE OR REPLACE FUNCTION task_fail(t tasks, p_at timestamptz, p_kind text, p_reason text, p_text text)
RETURNS tasks LANGUAGE plpgsql AS $$
BEGIN
  RETURN task_end(t, 4::smallint, 0, p_at, p_kind, 'broker', '', status_body(t, 4::smallint, p_at,
    broker_message(t, p_text), broker_metadata(jsonb_build_object('reason', p_reason, 'turn', t.turn_no, 'attempt', t.attempt))));
END $$;

-- The reaper's step for one row that lease_due named: judged again under the locks, so a late heartbeat or an end in
-- between wins. outcome: 'applied' | 'gone'. A deadline first asks the worker to stop, then fails the task.
CREATE OR REPLACE FUNCTION lease_end_due(p_tenant text, p_task uuid, p_fence int, p_kind text)
RETURNS TABLE (outcome text, state smallint, last_seq bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_at timestamptz := ledger_enter(p_tenant); k record; q queue; t tasks; v_now timestamptz;
BEGIN
  SELECT * INTO k FROM task_lock(p_tenant, p_task);
  t := k.t; q := k.q; v_now := clock_timestamp(); v_at := task_now(t);
  outcome := 'applied';
  IF q.fence IS DISTINCT FROM p_fence OR is_terminal(t.state) THEN
    outcome := 'gone';
  ELSIF p_kind = 'expired' AND q.worker IS NOT NULL AND q.lease_until < v_now THEN
    t := lease_requeue(t, q, v_at, 'expired', NULL, NULL);
  ELSIF p_kind = 'cancel' AND q.signal = 'cancel' AND q.signal_until <= v_now THEN
    t := task_end(t, 5::smallint, 0, v_at, 'cancel', 'broker', '', status_body(t, 5::smallint, v_at, NULL,
      broker_metadata(jsonb_build_object('reason', 'CANCEL_GRACE_ENDED'))));
  ELSIF p_kind = 'deadline' AND (q.worker IS NULL AND q.deadline <= v_now OR q.signal = 'deadline' AND q.signal_until <= v_now) THEN
    t := task_fail(t, v_at, CASE WHEN q.worker IS NOT NULL THEN 'deadline' END, 'DEADLINE_EXCEEDED', 'The deadline passed');
  ELSIF p_kind = 'deadline' AND q.signal IS NULL AND q.deadline <= v_now THEN
    UPDATE queue s SET signal = 'deadline', signal_until = v_at + make_interval(secs => t.cancel_grace_seconds)
     WHERE s.tenant_id = p_tenant AND s.task_id = p_task;
  ELSIF p_kind = 'queue_timeout' AND q.claim_by <= v_now THEN
    t := task_fail(t, v_at, NULL, 'QUEUE_TIMEOUT', 'No worker took the task in time');
  ELSE
    outcome := 'gone';
  END IF;
  state := t.state; last_seq := t.last_seq;
  RETURN NEXT;
END $$;

-- Fails one live task of a deleted agent; not of one that was registered again meanwhile. outcome as above.
CREATE OR REPLACE FUNCTION task_fail_deleted(p_tenant text, p_task uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := ledger_enter(p_tenant); k record;
BEGIN
  SELECT * INTO k FROM task_lock(p_tenant, p_task);
  IF (k.t).task_id IS NULL OR is_terminal((k.t).state)
     OR EXISTS (SELECT 1 FROM agents WHERE agent_id = (k.t).agent_id AND deleted_at IS NULL) THEN
    RETURN 'gone';
  END IF;
  PERFORM task_fail(k.t, v_at, CASE WHEN (k.q).worker IS NOT NULL THEN 'deleted' END, 'AGENT_DELETED', 'The agent was deleted');
  RETURN 'applied';
END $$;

-- Cancels paused tasks that nobody came back to; their ids. Called per tenant by maintenance.
CREATE OR REPLACE FUNCTION task_forget(p_tenant text, p_older double precision, p_limit int) RETURNS TABLE (task_id uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_at timestamptz := ledger_enter(p_tenant); v_id uuid; t tasks;
BEGIN
  FOR v_id IN SELECT s.task_id FROM tasks s WHERE s.tenant_id = p_tenant AND s.state IN (6, 8)
              AND s.status_at < v_at - make_interval(secs => p_older) ORDER BY s.status_at LIMIT p_limit LOOP
    SELECT * INTO t FROM tasks s WHERE s.tenant_id = p_tenant AND s.task_id = v_id AND s.state IN (6, 8)
      FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    PERFORM task_end(t, 5::smallint, 0, task_now(t), NULL, 'broker', '', status_body(t, 5::smallint, task_now(t), NULL,
      broker_metadata(jsonb_build_object('reason', 'INPUT_NEVER_CAME'))));
    task_id := v_id;
    RETURN NEXT;
  END LOOP;
END $$;
