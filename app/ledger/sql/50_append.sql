-- Workers' events: append, finish, pause and the end of a turn are one function, for a batch is all or nothing.
-- Refusals raise, so that nothing of the batch stays. SQLSTATEs (DETAIL: index of the event): WS010 append to an unknown
-- artifact, WS011 to a closed one, WS012 not a possible course, WS013 producerEventId seen with another body.

-- The arrays are parallel, one element an event: p_kinds 'status' | 'artifact' | 'message'; p_states, p_messages and
-- p_metadata of a status; p_artifacts (the whole artifactUpdate), p_artifact_ids, p_appends and p_lasts of an artifact.
-- outcome: 'applied' | 'terminal' | 'stale' | 'missing'. A batch that was stored before answers its old seqs as 'applied',
-- whatever has become of the lease (resume-contract, scenario 28).
CREATE OR REPLACE FUNCTION task_append(p_tenant text, p_task uuid, p_fence int, p_worker text, p_kinds text[], p_ids text[],
    p_hashes bytea[], p_states smallint[], p_messages text[], p_metadata text[], p_artifacts text[], p_artifact_ids text[],
    p_appends boolean[], p_lasts boolean[])
RETURNS TABLE (outcome text, seqs bigint[], duplicates int[], state smallint, last_seq bigint, terminal_seq bigint,
  turn_ended boolean, lease_ended boolean, signal text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_at timestamptz := ledger_enter(p_tenant);
  n int := cardinality(p_kinds);
  v_ends boolean := p_kinds[n] = 'message' OR coalesce(is_terminal(p_states[n]) OR is_interrupted(p_states[n]), false);
  q queue; t tasks; u tasks; v_seq bigint; v_fresh boolean; v_body text; v_kind text; v_status boolean := false;
BEGIN
  IF v_ends THEN  -- queue rows before tasks; a pure append locks the task only
    SELECT * INTO q FROM queue s WHERE s.tenant_id = p_tenant AND s.task_id = p_task FOR UPDATE;
  ELSE
    SELECT * INTO q FROM queue s WHERE s.tenant_id = p_tenant AND s.task_id = p_task;
  END IF;
  SELECT * INTO t FROM tasks s WHERE s.tenant_id = p_tenant AND s.task_id = p_task FOR NO KEY UPDATE;
  duplicates := '{}'; turn_ended := false; lease_ended := false;
  IF NOT FOUND THEN
    outcome := 'missing'; RETURN NEXT; RETURN;
  END IF;
  v_at := task_now(t);
  state := t.state; last_seq := t.last_seq; terminal_seq := t.terminal_seq;
  IF t.fence <> p_fence OR is_terminal(t.state) THEN  -- the race is lost, unless all of this was stored before
    seqs := events_resent(t, p_ids, p_hashes);
    lease_ended := true;
    IF seqs IS NULL THEN
      outcome := CASE WHEN is_terminal(t.state) THEN 'terminal' ELSE 'stale' END;
    ELSE
      outcome := 'applied'; duplicates := ARRAY(SELECT generate_series(0, n - 1)); turn_ended := turn_ended_at(t, seqs[n]);
    END IF;
    RETURN NEXT; RETURN;
  END IF;
  v_seq := t.last_seq;
  FOR i IN 1..n LOOP
    IF p_kinds[i] = 'message' AND (n > 1 OR turn_has_worker_events(t))
       AND event_resent(t, i - 1, p_ids[i], p_hashes[i]) IS NULL THEN
      RAISE EXCEPTION 'a direct reply is the only event of its turn' USING ERRCODE = 'WS012', DETAIL = (i - 1)::text;
    END IF;
    IF p_kinds[i] = 'artifact' THEN
      v_kind := CASE WHEN p_appends[i] THEN 'artifact.delta' ELSE 'artifact.replace' END;
      v_body := '{"artifactUpdate":' || p_artifacts[i] || '}';
    ELSIF i = n AND v_ends THEN
      EXIT;  -- the end of the lease is written by lease_finish
    ELSE
      v_kind := 'status'; v_body := status_body(t, 2::smallint, v_at, p_messages[i], p_metadata[i]);
    END IF;
    INSERT INTO events AS e (tenant_id, task_id, seq, kind, producer_event_id, body_hash, turn_no, attempt, actor_kind,
      actor_id, at, body)
    VALUES (p_tenant, p_task, v_seq + 1, v_kind, p_ids[i], p_hashes[i], t.turn_no, t.attempt, 'worker', p_worker, v_at, v_body)
    ON CONFLICT (tenant_id, task_id, producer_event_id) WHERE producer_event_id IS NOT NULL DO NOTHING;
    IF FOUND THEN
      v_seq := v_seq + 1; seqs := seqs || v_seq; v_status := v_status OR v_kind = 'status';
      IF p_kinds[i] = 'artifact' THEN
        PERFORM artifact_touch(t, i - 1, p_artifact_ids[i], p_appends[i], p_lasts[i]);
      END IF;
    ELSE
      seqs := seqs || event_resent(t, i - 1, p_ids[i], p_hashes[i]); duplicates := duplicates || (i - 1);
    END IF;
  END LOOP;
  IF t.notifies AND v_seq > t.last_seq THEN
    PERFORM outbox_put(t, t.last_seq + 1, v_seq, v_at);
  END IF;
  outcome := 'applied'; signal := q.signal;
  IF v_ends THEN
    u := lease_finish(t, q, v_at, (v_seq - t.last_seq)::int, p_worker, p_ids[n], p_hashes[n],
                      CASE WHEN p_kinds[n] = 'message' THEN 3::smallint ELSE p_states[n] END, p_messages[n],
                      CASE WHEN p_kinds[n] = 'message' THEN reply_metadata(t) ELSE p_metadata[n] END);
  END IF;
  IF u.task_id IS NULL THEN
    IF v_ends THEN  -- the last event was stored before, under an earlier lease: only the rest is new
      seqs := seqs || event_resent(t, n - 1, p_ids[n], p_hashes[n]); duplicates := duplicates || (n - 1);
    END IF;
    UPDATE tasks s SET last_seq = v_seq, status_at = CASE WHEN v_status THEN v_at ELSE s.status_at END
     WHERE s.tenant_id = p_tenant AND s.task_id = p_task AND v_seq > t.last_seq;
    last_seq := v_seq;
  ELSE
    seqs := seqs || v_seq + 1;
    state := u.state; last_seq := u.last_seq; terminal_seq := u.terminal_seq; lease_ended := true;
    turn_ended := u.ended_kind = 'turn';
  END IF;
  RETURN NEXT;
END $$;

-- What tells a direct reply in the log from a status with a message: only the broker writes under this URI.
CREATE OR REPLACE FUNCTION reply_metadata(t tasks) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT broker_metadata(jsonb_build_object('directReply', true, 'turn', t.turn_no, 'attempt', t.attempt)) $$;

-- The end of a lease by its worker. t: the locked row; p_before: events of this batch already added; answers the row after,
-- or NULL when the ending event had been stored before. With a turn queued COMPLETED ends the turn, not the task, and a
-- bare INPUT_REQUIRED is answered at once by the queued message. A cancel that is pending wins over everything that would
-- leave the task alive (resume-contract, Cancel against complete).
CREATE OR REPLACE FUNCTION lease_finish(t tasks, q queue, p_at timestamptz, p_before int, p_worker text, p_id text, p_hash bytea,
    p_state smallint, p_message text, p_metadata text) RETURNS tasks LANGUAGE plpgsql AS $$
DECLARE
  u tasks; v_seq bigint := t.last_seq + p_before + 1;
  v_next boolean := t.turns_queued > 0 AND p_state IN (3, 6);
  v_canceled boolean := q.signal = 'cancel' AND (v_next OR is_interrupted(p_state));
  v_kind text := CASE WHEN v_next AND p_state = 3 THEN 'turn.ended' ELSE 'status' END;
  v_shown smallint := CASE WHEN v_kind = 'turn.ended' THEN 2 ELSE p_state END;
BEGIN
  INSERT INTO events (tenant_id, task_id, seq, kind, producer_event_id, body_hash, turn_no, attempt, actor_kind, actor_id, at, body)
  VALUES (t.tenant_id, t.task_id, v_seq, v_kind, p_id, p_hash, t.turn_no, t.attempt, 'worker', p_worker, p_at,
          status_body(t, v_shown, p_at, p_message, p_metadata))
  ON CONFLICT (tenant_id, task_id, producer_event_id) WHERE producer_event_id IS NOT NULL DO NOTHING;
  IF NOT FOUND THEN
    RETURN NULL;
  ELSIF t.notifies THEN
    PERFORM outbox_put(t, v_seq, v_seq, p_at);
  END IF;
  UPDATE turns SET state = turn_end_name(p_state), ended_at = p_at
   WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND turn_no = t.turn_no;
  IF v_canceled THEN
    RETURN task_end(t, 5::smallint, p_before + 1, p_at, 'cancel', 'broker', '', status_body(t, 5::smallint, p_at, NULL, NULL));
  ELSIF v_next THEN
    RETURN turn_next(t, p_at, p_before + 1, p_state);
  END IF;
  u := task_advance_locked(t, p_state, p_before + 1, p_at, CASE WHEN is_terminal(p_state) THEN 'finish' ELSE 'pause' END,
                           NULL, NULL, NULL);
  UPDATE turns SET state = 'canceled', ended_at = p_at
   WHERE is_terminal(p_state) AND tenant_id = t.tenant_id AND task_id = t.task_id AND state = 'queued';
  DELETE FROM queue WHERE tenant_id = t.tenant_id AND task_id = t.task_id;
  RETURN u;
END $$;

-- The lease ends and the next queued turn becomes claimable. After INPUT_REQUIRED the log says that the task works again.
CREATE OR REPLACE FUNCTION turn_next(t tasks, p_at timestamptz, p_seqs int, p_ended smallint) RETURNS tasks LANGUAGE plpgsql AS $$
DECLARE u tasks; v_turn int; v_again boolean := is_interrupted(p_ended);
BEGIN
  SELECT min(turn_no) INTO v_turn FROM turns WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND state = 'queued';
  u := task_advance_locked(t, 2::smallint, p_seqs + v_again::int, p_at, 'turn', v_turn, 0, t.turns_queued - 1);
  IF v_again THEN
    PERFORM event_add(u, u.last_seq, 'status', p_at, 'broker', '', status_body(u, 2::smallint, p_at, NULL, NULL));
  END IF;
  PERFORM queue_return(u, p_at, p_at, true);
  RETURN u;
END $$;

-- What was stored under these producerEventIds: their seqs in order, or NULL unless every one was. One equality per id:
-- "= ANY" would read all events of the task.
CREATE OR REPLACE FUNCTION events_resent(t tasks, p_ids text[], p_hashes bytea[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE v_seqs bigint[] := '{}'; v_seq bigint;
BEGIN
  FOR i IN 1..cardinality(p_ids) LOOP
    v_seq := event_resent(t, i - 1, p_ids[i], p_hashes[i]);
    IF v_seq IS NULL THEN
      RETURN NULL;
    END IF;
    v_seqs := v_seqs || v_seq;
  END LOOP;
  RETURN v_seqs;
END $$;

CREATE OR REPLACE FUNCTION event_resent(t tasks, p_index int, p_id text, p_hash bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_seq bigint; v_hash bytea;
BEGIN
  SELECT seq, body_hash INTO v_seq, v_hash FROM events
   WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND producer_event_id = p_id;
  IF v_hash <> p_hash THEN
    RAISE EXCEPTION 'another body' USING ERRCODE = 'WS013', DETAIL = p_index::text;
  END IF;
  RETURN v_seq;
END $$;

-- Whether the event at p_seq ended its turn and not the task: a turn.ended (but not one that a pending cancel followed at
-- once, in the same turn), or an INPUT_REQUIRED that a queued message answered, which the broker's WORKING follows at once.
CREATE OR REPLACE FUNCTION turn_ended_at(t tasks, p_seq bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM events e WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND seq = p_seq AND kind = 'turn.ended'
                   AND NOT EXISTS (SELECT 1 FROM events WHERE tenant_id = t.tenant_id AND task_id = t.task_id
                                     AND seq = p_seq + 1 AND turn_no = e.turn_no))
      OR EXISTS (SELECT 1 FROM events WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND seq = p_seq + 1
                   AND kind = 'status' AND actor_kind = 'broker' AND seq IS DISTINCT FROM t.terminal_seq AND attempt = 0);
END $$;

-- append=false makes, replaces or reopens an artifact; append=true needs one that is open.
CREATE OR REPLACE FUNCTION artifact_touch(t tasks, p_index int, p_artifact text, p_append boolean, p_last boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_closed boolean;
BEGIN
  IF NOT p_append THEN
    INSERT INTO artifacts VALUES (t.tenant_id, t.task_id, p_artifact, p_last)
    ON CONFLICT (tenant_id, task_id, artifact_id) DO UPDATE SET closed = p_last WHERE artifacts.closed <> p_last;
    RETURN;
  END IF;
  SELECT closed INTO v_closed FROM artifacts WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND artifact_id = p_artifact;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'unknown artifact' USING ERRCODE = 'WS010', DETAIL = p_index::text;
  ELSIF v_closed THEN
    RAISE EXCEPTION 'closed artifact' USING ERRCODE = 'WS011', DETAIL = p_index::text;
  ELSIF p_last THEN
    UPDATE artifacts SET closed = true WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND artifact_id = p_artifact;
  END IF;
END $$;

-- Only asked for a direct reply, which is rare: reads this turn's part of the log. What a worker sent has a body hash;
-- the WORKING of a claim, which the ledger writes in its name, has none.
CREATE OR REPLACE FUNCTION turn_has_worker_events(t tasks) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM events e, turns n
    WHERE n.tenant_id = t.tenant_id AND n.task_id = t.task_id AND n.turn_no = t.turn_no
      AND e.tenant_id = t.tenant_id AND e.task_id = t.task_id AND e.seq > n.message_seq AND e.turn_no = t.turn_no
      AND e.body_hash IS NOT NULL);
END $$;
