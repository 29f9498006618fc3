-- The share that an agent's owner gives to a lane, of whichever tenant: lanes hold no content, so it is written under
-- 'app.dispatch', and only for the owner. The lane without a key is its tenant's: its weight is the tenant's among all
-- tenants, its limit that of all the tenant's lanes. A lane may be set before its first task: lane_ensure finds it.
-- outcome: 'applied' | 'missing' (p_owner has no such agent) | 'full' (1,000 lanes were made that no task ever came from:
-- a claim looks at every lane).
CREATE OR REPLACE FUNCTION lane_set(p_owner text, p_agent text, p_tenant text, p_fair_key text, p_weight real, p_max_running int)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ledger_enter(p_owner);
  PERFORM 1 FROM agents WHERE agent_id = p_agent AND tenant_id = p_owner AND deleted_at IS NULL;
  IF NOT FOUND THEN
    RETURN 'missing';
  END IF;
  PERFORM set_config('app.dispatch', 'on', true);
  PERFORM 1 FROM lanes WHERE tenant_id = p_tenant AND agent_id = p_agent AND fair_key = p_fair_key;
  IF NOT FOUND AND (SELECT count(*) FROM lanes WHERE agent_id = p_agent AND vtime = 0) >= 1000 THEN
    RETURN 'full';
  END IF;
  INSERT INTO lanes (tenant_id, agent_id, fair_key, weight, max_running)
  VALUES (p_tenant, p_agent, p_fair_key, p_weight, p_max_running)
  ON CONFLICT (tenant_id, agent_id, fair_key) DO UPDATE SET weight = excluded.weight, max_running = excluded.max_running;
  RETURN 'applied';
END $$;
