-- Small pieces that the other files are made of. The planner inlines an SQL function only if it is declared no less volatile
-- than what it calls (to_json and to_char are STABLE); a call that is not inlined costs about 0.1 ms.

-- Every function that touches tenant data starts here: names the one tenant that this transaction sees (row level
-- security) and reads the database's clock once. NULL is refused, for it would pass for "no rows".
CREATE OR REPLACE FUNCTION ledger_enter(p_tenant text) RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
  IF p_tenant IS NULL OR p_tenant = '' OR strpos(p_tenant, ',') > 0 THEN
    RAISE EXCEPTION 'a transaction needs exactly one tenant' USING ERRCODE = '42501';
  END IF;
  PERFORM set_config('app.tenants', ',' || p_tenant || ',', true);
  RETURN date_trunc('milliseconds', clock_timestamp());
END $$;

-- The database's time once more, for a function that has waited for the task's lock meanwhile: a task's times never go back.
CREATE OR REPLACE FUNCTION task_now(t tasks) RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT greatest(date_trunc('milliseconds', clock_timestamp()), t.status_at) $$;

-- The numbers of a2a.proto; app/protocol/states.py is the other place, and a test holds the two together.
CREATE OR REPLACE FUNCTION is_terminal(p_state smallint) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT p_state IN (3, 4, 5, 7) $$;

CREATE OR REPLACE FUNCTION is_interrupted(p_state smallint) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT p_state IN (6, 8) $$;

CREATE OR REPLACE FUNCTION state_name(p_state smallint) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT 'TASK_STATE_' || (ARRAY['SUBMITTED', 'WORKING', 'COMPLETED', 'FAILED', 'CANCELED', 'INPUT_REQUIRED', 'REJECTED',
                                  'AUTH_REQUIRED'])[p_state] $$;

CREATE OR REPLACE FUNCTION turn_end_name(p_state smallint) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN p_state = 3 THEN 'done' WHEN p_state IN (6, 8) THEN 'paused' WHEN p_state = 5 THEN 'canceled'
               ELSE 'failed' END $$;

CREATE OR REPLACE FUNCTION rfc3339(p_at timestamptz) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') $$;

-- RFC 9562 version 7 on the database's clock: the time says which partition of events the task lives in.
CREATE OR REPLACE FUNCTION uuid_v7(p_at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
                  PLACING substring(int8send((extract(epoch FROM p_at) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
                52, 1), 53, 1), 'hex')::uuid $$;

-- Kinds that A2A doors show, each body a StreamResponse; app/protocol/events.py is the other place, and a test holds the
-- two together.
CREATE OR REPLACE FUNCTION is_shown(p_kind text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT p_kind NOT IN ('message.user', 'turn.started', 'action.answered', 'effect.changed') $$;

-- A client's message as it is stored: its JSON object text with the ids that the ledger decided put in front.
CREATE OR REPLACE FUNCTION message_of(p_message text, p_task uuid, p_context text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT '{"taskId":"' || p_task || '","contextId":' || to_json(p_context) || ',' || substr(p_message, 2) $$;

-- The one place where a status event's body is written. p_message and p_metadata are JSON text or NULL.
CREATE OR REPLACE FUNCTION status_body(t tasks, p_state smallint, p_at timestamptz, p_message text, p_metadata text)
RETURNS text LANGUAGE sql STABLE AS $$
  SELECT '{"statusUpdate":{"taskId":"' || t.task_id || '","contextId":' || to_json(t.context_id)
      || ',"status":{"state":"' || state_name(p_state) || '"' || coalesce(',"message":' || p_message, '')
      || ',"timestamp":"' || rfc3339(p_at) || '"}' || coalesce(',"metadata":' || p_metadata, '') || '}}' $$;

-- What the broker says of itself stands under the resume extension's URI only (native-api.md).
CREATE OR REPLACE FUNCTION broker_metadata(p_facts jsonb) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT jsonb_build_object('https://waystation.dev/ext/resume/v1', jsonb_strip_nulls(p_facts))::text $$;

-- A message in the agent's name for a state that the broker itself decides.
CREATE OR REPLACE FUNCTION broker_message(t tasks, p_text text) RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT json_build_object('messageId', gen_random_uuid(), 'taskId', t.task_id, 'contextId', t.context_id,
                           'role', 'ROLE_AGENT', 'parts', json_build_array(json_build_object('text', p_text)))::text $$;

-- One row of the log, and of the outbox where somebody is to be notified. The caller holds the task's row lock and has
-- counted p_seq into tasks.last_seq.
CREATE OR REPLACE FUNCTION event_add(t tasks, p_seq bigint, p_kind text, p_at timestamptz, p_actor_kind text,
                                     p_actor text, p_body text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (tenant_id, task_id, seq, kind, turn_no, attempt, actor_kind, actor_id, at, body)
  VALUES (t.tenant_id, t.task_id, p_seq, p_kind, t.turn_no, t.attempt, p_actor_kind, p_actor, p_at, p_body);
  IF t.notifies AND is_shown(p_kind) THEN
    PERFORM outbox_put(t, p_seq, p_seq, p_at);
  END IF;
END $$;

-- A task's work becomes claimable. Called under the task's row lock, so nobody else can be adding or removing the row.
CREATE OR REPLACE FUNCTION queue_put(t tasks, p_at timestamptz, p_run_at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO queue (tenant_id, task_id, agent_id, fair_key, priority, queued_at, run_at, deadline, claim_by, fence,
                     lease_seconds)
  VALUES (t.tenant_id, t.task_id, t.agent_id, t.fair_key, t.priority, p_at, p_run_at,
          p_run_at + make_interval(secs => t.deadline_seconds), p_run_at + make_interval(secs => t.queue_timeout_seconds),
          t.fence, t.lease_seconds);
END $$;

-- The lane of a task, which exists from its first task on. A tenant has 63 lanes of an agent for the fair keys that come
-- first, and one for tasks without a key; later keys share those 63, for a claim looks at every lane. (Submits that race
-- may make a few more.) A lane that lane_set gave a share of its own is its key's alone, and no part of the 63. The look
-- comes first: ON CONFLICT would wait for a claim that is updating the lane.
CREATE OR REPLACE FUNCTION lane_ensure(p_tenant text, p_agent text, p_fair_key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_keys text[]; v_most int := 63;
BEGIN
  PERFORM 1 FROM lanes WHERE tenant_id = p_tenant AND agent_id = p_agent AND fair_key = p_fair_key;
  IF FOUND THEN
    RETURN p_fair_key;
  END IF;
  v_keys := ARRAY(SELECT fair_key FROM lanes WHERE tenant_id = p_tenant AND agent_id = p_agent AND fair_key <> ''
                    AND weight = 1 AND max_running IS NULL ORDER BY fair_key);
  IF p_fair_key <> '' AND cardinality(v_keys) >= v_most THEN
    RETURN v_keys[1 + (hashtextextended(p_fair_key, 0) & 2147483647) % v_most];
  END IF;
  INSERT INTO lanes (tenant_id, agent_id, fair_key) VALUES (p_tenant, p_agent, p_fair_key) ON CONFLICT DO NOTHING;
  RETURN p_fair_key;
END $$;
