-- Clients' messages: a new task (task_submit), or a message to one that exists (task_send).
-- A refusal raises, so that nothing of the request stays, not even its idempotency keys. SQLSTATEs:
-- WS001 idempotency clash, WS002 no such task, WS003 another contextId, WS004 busy, WS005 terminal (DETAIL "state seq"),
-- WS006 too many push notification configs.
-- A message may bring one such config (p_config …), which is made with it, and not again by a duplicate. These parameters
-- have defaults because the release before does not know them.

-- Takes the message's idempotency keys, in sorted order, each by a write: a duplicate that only read could be confirmed
-- before its original is replicated (reliability.md). p_task and p_turn are what the keys shall stand for; answered is
-- what they do stand for. A concurrent duplicate waits here for the first one's commit.
CREATE OR REPLACE FUNCTION keys_take(p_tenant text, p_subject text, p_agent text, p_message_key text, p_header_key text,
    p_hash bytea, p_at timestamptz, INOUT p_task uuid, INOUT p_turn int, OUT p_fresh boolean) LANGUAGE plpgsql AS $$
DECLARE k record; r record; own_task uuid := p_task; own_turn int := p_turn;
BEGIN
  p_fresh := true;
  FOR k IN SELECT v.kind, v.key FROM (VALUES ('header', p_header_key), ('message', p_message_key)) v(kind, key)
           WHERE v.key IS NOT NULL ORDER BY v.kind COLLATE "C" LOOP
    INSERT INTO idempotency AS i (tenant_id, subject, agent_id, kind, key, request_hash, task_id, turn_no, expires_at)
    VALUES (p_tenant, p_subject, p_agent, k.kind, k.key, p_hash, p_task, p_turn, p_at + interval '1 day')
    ON CONFLICT (tenant_id, subject, agent_id, kind, key) DO UPDATE SET expires_at = greatest(i.expires_at, excluded.expires_at)
    RETURNING i.task_id, i.turn_no, i.request_hash, xmax = 0 AS fresh INTO r;
    CONTINUE WHEN r.fresh;
    IF r.request_hash <> p_hash OR NOT p_fresh AND (r.task_id, r.turn_no) <> (p_task, p_turn) THEN
      RAISE EXCEPTION 'idempotency clash' USING ERRCODE = 'WS001';
    END IF;
    p_task := r.task_id; p_turn := r.turn_no; p_fresh := false;
  END LOOP;
  IF NOT p_fresh THEN  -- the header was free, but its message is known: now both stand for that one
    UPDATE idempotency SET task_id = p_task, turn_no = p_turn
     WHERE tenant_id = p_tenant AND subject = p_subject AND agent_id = p_agent AND kind = 'header' AND key = p_header_key
       AND task_id = own_task AND turn_no = own_turn;
  END IF;
END $$;

-- A first message: task SUBMITTED, turn 1, event 1 (the Task with its message), a queue row and its lane, in one commit.
CREATE OR REPLACE FUNCTION task_submit(p_tenant text, p_subject text, p_agent text, p_context text, p_message text,
    p_message_key text, p_header_key text, p_hash bytea, p_max_attempts int, p_backoff real, p_max_backoff real,
    p_lease real, p_grace real, p_on_busy text, p_deadline real, p_queue_timeout real, p_priority int, p_fair_key text,
    p_delay double precision, p_config text DEFAULT NULL, p_url text DEFAULT NULL, p_scheme text DEFAULT NULL,
    p_secret bytea DEFAULT NULL, p_destination text DEFAULT NULL)
RETURNS TABLE (task_id uuid, context_id text, turn_no int, state smallint, last_seq bigint, replayed boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_at timestamptz := ledger_enter(p_tenant); k record; t tasks; v_lane text;
BEGIN
  SELECT * INTO k FROM keys_take(p_tenant, p_subject, p_agent, p_message_key, p_header_key, p_hash, v_at, uuid_v7(v_at), 1);
  IF NOT k.p_fresh THEN
    RETURN QUERY SELECT s.task_id, s.context_id, k.p_turn, s.state, s.last_seq, true FROM tasks s
                 WHERE s.tenant_id = p_tenant AND s.task_id = k.p_task;
    RETURN;
  END IF;
  INSERT INTO tenants VALUES (p_tenant) ON CONFLICT DO NOTHING;
  v_lane := lane_ensure(p_tenant, p_agent, p_fair_key);
  INSERT INTO tasks (tenant_id, task_id, agent_id, context_id, fair_key, priority, state, last_seq, status_at, created_at,
    created_by, on_busy, max_attempts, backoff_seconds, max_backoff_seconds, lease_seconds, cancel_grace_seconds,
    deadline_seconds, queue_timeout_seconds)
  VALUES (p_tenant, k.p_task, p_agent, coalesce(p_context, uuid_v7(v_at)::text), v_lane, p_priority, 1, 1, v_at, v_at,
    p_subject, p_on_busy, p_max_attempts, p_backoff, p_max_backoff, p_lease, p_grace, p_deadline, p_queue_timeout)
  RETURNING * INTO t;
  INSERT INTO turns VALUES (p_tenant, t.task_id, 1, 'queued', 1, v_at);
  PERFORM event_add(t, 1, 'task.submitted', v_at, 'client', p_subject, submitted_body(t, v_at, p_message));
  IF p_config IS NOT NULL THEN
    PERFORM push_config_put(t, p_subject, v_at, p_config, p_url, p_scheme, p_secret, p_destination);
  END IF;
  PERFORM queue_put(t, v_at, v_at + make_interval(secs => p_delay));
  RETURN QUERY SELECT t.task_id, t.context_id, 1, t.state, t.last_seq, false;
END $$;

CREATE OR REPLACE FUNCTION submitted_body(t tasks, p_at timestamptz, p_message text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT '{"task":{"id":"' || t.task_id || '","contextId":' || to_json(t.context_id)
      || ',"status":{"state":"TASK_STATE_SUBMITTED","timestamp":"' || rfc3339(p_at) || '"},"history":['
      || message_of(p_message, t.task_id, t.context_id) || ']}}' $$;

-- A message to a task: queues a turn behind a SUBMITTED or WORKING one, or starts a turn on an interrupted one.
CREATE OR REPLACE FUNCTION task_send(p_tenant text, p_subject text, p_agent text, p_task uuid, p_context text,
    p_message text, p_message_key text, p_header_key text, p_hash bytea, p_on_busy text, p_config text DEFAULT NULL,
    p_url text DEFAULT NULL, p_scheme text DEFAULT NULL, p_secret bytea DEFAULT NULL, p_destination text DEFAULT NULL)
RETURNS TABLE (task_id uuid, context_id text, turn_no int, state smallint, last_seq bigint, replayed boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_at timestamptz := ledger_enter(p_tenant); k record; t tasks; u tasks; v_resumes boolean;
BEGIN
  -- turn 0: not known before the task is locked; nobody sees it, for a duplicate waits for this commit
  SELECT * INTO k FROM keys_take(p_tenant, p_subject, p_agent, p_message_key, p_header_key, p_hash, v_at, p_task, 0);
  IF NOT k.p_fresh THEN
    RETURN QUERY SELECT s.task_id, s.context_id, k.p_turn, s.state, s.last_seq, true FROM tasks s
                 WHERE s.tenant_id = p_tenant AND s.task_id = k.p_task;
    RETURN;
  END IF;
  SELECT * INTO t FROM tasks s WHERE s.tenant_id = p_tenant AND s.task_id = p_task AND s.agent_id = p_agent FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no such task' USING ERRCODE = 'WS002';
  ELSIF p_context <> t.context_id THEN
    RAISE EXCEPTION 'another context' USING ERRCODE = 'WS003';
  ELSIF is_terminal(t.state) THEN
    RAISE EXCEPTION 'terminal' USING ERRCODE = 'WS005', DETAIL = t.state || ' ' || t.terminal_seq;
  END IF;
  v_at := task_now(t);
  v_resumes := is_interrupted(t.state);
  IF NOT v_resumes AND coalesce(p_on_busy, t.on_busy) = 'reject' THEN
    RAISE EXCEPTION 'busy' USING ERRCODE = 'WS004';
  END IF;
  IF p_config IS NOT NULL THEN
    PERFORM push_config_put(t, p_subject, v_at, p_config, p_url, p_scheme, p_secret, p_destination);
  END IF;
  UPDATE tasks s SET last_turn = s.last_turn + 1, turns_queued = s.turns_queued + (NOT v_resumes)::int,
    last_seq = s.last_seq + 1
   WHERE s.tenant_id = p_tenant AND s.task_id = p_task RETURNING * INTO u;
  INSERT INTO turns VALUES (p_tenant, p_task, u.last_turn, 'queued', u.last_seq, v_at);
  UPDATE idempotency i SET turn_no = u.last_turn
   WHERE i.tenant_id = p_tenant AND i.subject = p_subject AND i.agent_id = p_agent AND i.task_id = p_task AND i.turn_no = 0
     AND (i.kind = 'message' AND i.key = p_message_key OR i.kind = 'header' AND i.key = p_header_key);
  IF v_resumes THEN
    u := task_advance_locked(u, 2::smallint, 1, v_at, NULL, u.last_turn, 0, NULL);
    PERFORM queue_put(u, v_at, v_at);
    PERFORM event_add(u, u.last_seq, 'status', v_at, 'broker', '', status_body(u, 2::smallint, v_at, NULL, NULL));
  END IF;
  PERFORM event_of_message(u, u.last_turn, u.last_seq - v_resumes::int, v_at, p_subject, p_message);
  RETURN QUERY SELECT u.task_id, u.context_id, u.last_turn, u.state, u.last_seq, false;
END $$;

CREATE OR REPLACE FUNCTION event_of_message(u tasks, p_turn int, p_seq bigint, p_at timestamptz, p_subject text, p_message text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  u.turn_no := p_turn; u.attempt := 0;  -- the message belongs to the turn it starts, not to the one that runs
  PERFORM event_add(u, p_seq, 'message.user', p_at, 'client', p_subject,
                    '{"message":' || message_of(p_message, u.task_id, u.context_id) || '}');
END $$;
