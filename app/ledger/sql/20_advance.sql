-- task_advance is the only UPDATE of a task's state. Its WHERE carries the fence and the prior state, so of two racing
-- transactions the second finds no row.

-- p_fence: the fence the writer holds; NULL for writers that need none (clients' messages and cancels).
-- p_seqs: how many events the transaction appends. p_lease: NULL: the lease goes on (or there is none); 'claim': one
-- begins; anything else: how it ends (finish, pause, turn, retry, release, expired, cancel, deadline, queue_timeout,
-- deleted). A claim and every end raise the fence, so no write of an ended lease can ever match again.
-- p_turn, p_attempt, p_queued: new values, or NULL to keep. Answers the row after the change, or NULL: the race is lost.
CREATE OR REPLACE FUNCTION task_advance(p_tenant text, p_task uuid, p_fence int, p_state smallint, p_seqs int,
    p_at timestamptz, p_lease text, p_turn int, p_attempt int, p_queued int) RETURNS tasks LANGUAGE plpgsql AS $$
DECLARE t tasks;
BEGIN
  UPDATE tasks SET
    state = p_state,
    status_at = CASE WHEN p_seqs > 0 THEN p_at ELSE status_at END,
    last_seq = last_seq + p_seqs,
    terminal_seq = CASE WHEN is_terminal(p_state) THEN last_seq + p_seqs END,
    fence = CASE WHEN p_lease IS NULL THEN fence ELSE fence + 1 END,
    ended_fence = CASE WHEN p_lease <> 'claim' THEN fence ELSE ended_fence END,
    ended_kind = CASE WHEN p_lease <> 'claim' THEN p_lease ELSE ended_kind END,
    turn_no = coalesce(p_turn, turn_no),
    attempt = coalesce(p_attempt, attempt),
    turns_queued = CASE WHEN is_terminal(p_state) THEN 0 ELSE coalesce(p_queued, turns_queued) END
  WHERE tenant_id = p_tenant AND task_id = p_task AND NOT is_terminal(state) AND (p_fence IS NULL OR fence = p_fence)
  RETURNING * INTO t;
  RETURN t;
END $$;

-- The same, where the caller already holds the row's lock and has judged it: losing here is a fault, never a race.
CREATE OR REPLACE FUNCTION task_advance_locked(t tasks, p_state smallint, p_seqs int, p_at timestamptz, p_lease text,
    p_turn int, p_attempt int, p_queued int) RETURNS tasks LANGUAGE plpgsql AS $$
DECLARE u tasks;
BEGIN
  u := task_advance(t.tenant_id, t.task_id, t.fence, p_state, p_seqs, p_at, p_lease, p_turn, p_attempt, p_queued);
  IF u.task_id IS NULL THEN
    RAISE EXCEPTION 'task % changed under its lock', t.task_id USING ERRCODE = 'XX001';
  END IF;
  RETURN u;
END $$;

-- The end of a task: its last event, its turns closed, its queue row gone.
-- t is the locked row; p_seqs counts the events before the terminal one that this transaction has added already. p_end is
-- NULL where nobody held the task: no lease ends, and the one that ended last is still known, for its worker may repeat it.
CREATE OR REPLACE FUNCTION task_end(t tasks, p_state smallint, p_seqs int, p_at timestamptz, p_end text,
    p_actor_kind text, p_actor text, p_body text) RETURNS tasks LANGUAGE plpgsql AS $$
DECLARE u tasks;
BEGIN
  u := task_advance_locked(t, p_state, p_seqs + 1, p_at, p_end, NULL, NULL, NULL);
  PERFORM event_add(u, u.last_seq, 'status', p_at, p_actor_kind, p_actor, p_body);
  UPDATE turns SET state = CASE WHEN turn_no = t.turn_no THEN turn_end_name(p_state) ELSE 'canceled' END, ended_at = p_at
   WHERE tenant_id = t.tenant_id AND task_id = t.task_id AND state IN ('queued', 'running');
  DELETE FROM queue WHERE tenant_id = t.tenant_id AND task_id = t.task_id;
  RETURN u;
END $$;

-- The next attempt or turn becomes claimable: the queue row stays, under the task's fence, held by nobody.
CREATE OR REPLACE FUNCTION queue_return(u tasks, p_at timestamptz, p_run_at timestamptz, p_new_turn boolean)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE queue SET worker = NULL, claim_id = NULL, lease_until = NULL, signal = NULL, signal_until = NULL,
    fence = u.fence, run_at = p_run_at, lease_seconds = u.lease_seconds,
    queued_at = CASE WHEN p_new_turn THEN p_at ELSE queued_at END,
    deadline = CASE WHEN p_new_turn THEN p_run_at + make_interval(secs => u.deadline_seconds) ELSE deadline END,
    claim_by = CASE WHEN p_new_turn THEN p_run_at + make_interval(secs => u.queue_timeout_seconds) END
   WHERE tenant_id = u.tenant_id AND task_id = u.task_id;
END $$;
