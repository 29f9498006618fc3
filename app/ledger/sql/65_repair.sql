-- What no transition leaves behind and is repaired all the same (aegra#476): a live task with neither queue row nor lease,
-- for which nobody would ever do anything.

-- Looks at the next p_limit of a tenant's tasks in a live state whose status is older than p_age seconds, and queues again
-- those that are in no queue, under their fence + 1 and with their attempt kept: whoever still held one finds its lease
-- ended. They are read by the age of their status, oldest first: what is lost keeps its place while all else moves on.
-- p_at, p_id: where the page begins (NULL: at the start); answers where it ended, or NULL when there are no more.
CREATE OR REPLACE FUNCTION tasks_repair(p_tenant text, p_state smallint, p_age double precision, p_limit int,
    INOUT p_at timestamptz, INOUT p_id uuid, OUT p_tasks uuid[], OUT p_agents text[]) LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := ledger_enter(p_tenant); v_left int := p_limit; r record; t tasks;
BEGIN
  p_at := coalesce(p_at, '-infinity'); p_id := coalesce(p_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  p_tasks := '{}'; p_agents := '{}';
  FOR r IN SELECT s.*, (SELECT true FROM queue q WHERE q.tenant_id = p_tenant AND q.task_id = s.task_id LIMIT 1) AS queued
             FROM (SELECT task_id, status_at FROM tasks WHERE tenant_id = p_tenant AND state = p_state
                     AND status_at >= p_at AND (status_at > p_at OR task_id < p_id)
                     AND status_at <= v_at - make_interval(secs => p_age)
                    ORDER BY status_at, task_id DESC LIMIT p_limit) s LOOP
    v_left := v_left - 1; p_at := r.status_at; p_id := r.task_id;
    CONTINUE WHEN r.queued;
    -- judged again: a queue row comes and goes under the task's lock only
    SELECT * INTO t FROM tasks WHERE tenant_id = p_tenant AND task_id = r.task_id AND state = p_state FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    PERFORM 1 FROM queue WHERE tenant_id = p_tenant AND task_id = r.task_id;
    CONTINUE WHEN FOUND;
    t := task_advance_locked(t, p_state, 0, v_at, 'repair', NULL, NULL, NULL);
    PERFORM queue_put(t, v_at, v_at);
    p_tasks := p_tasks || t.task_id; p_agents := p_agents || t.agent_id;
  END LOOP;
  IF v_left > 0 THEN
    p_at := NULL;
  END IF;
END $$;
