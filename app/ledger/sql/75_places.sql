-- A task's place among the waiting tasks of its lane: 1 is claimed next. Counted up to p_bound, so that a long backlog
-- costs no more than a short one. NULL: the task does not wait.
CREATE OR REPLACE FUNCTION queue_position(p_tenant text, p_task uuid, p_bound int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE q queue;
BEGIN
  PERFORM ledger_enter(p_tenant);
  SELECT * INTO q FROM queue WHERE tenant_id = p_tenant AND task_id = p_task AND worker IS NULL;
  IF NOT FOUND THEN RETURN NULL; END IF;
  RETURN 1 + (SELECT count(*) FROM (
    SELECT 1 FROM queue s
     WHERE s.agent_id = q.agent_id AND s.tenant_id = p_tenant AND s.fair_key = q.fair_key AND s.worker IS NULL
       AND (s.priority > q.priority OR s.priority = q.priority AND (s.run_at, s.task_id) < (q.run_at, q.task_id))
     LIMIT p_bound) ahead);
END $$;
