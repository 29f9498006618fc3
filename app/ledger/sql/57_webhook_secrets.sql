-- A tenant's signing secrets: one that stays (expires_at NULL) and, while it is being rotated, the one before.

CREATE OR REPLACE FUNCTION webhook_secrets_live(p_tenant text) RETURNS SETOF webhook_secrets LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := ledger_enter(p_tenant);
BEGIN
  RETURN QUERY SELECT * FROM webhook_secrets WHERE tenant_id = p_tenant AND (expires_at IS NULL OR expires_at > v_at)
               ORDER BY expires_at DESC NULLS FIRST;
END $$;

-- The first secret, unless somebody else was faster; what is live then.
CREATE OR REPLACE FUNCTION webhook_secrets_ensure(p_tenant text, p_secret text, p_sealed bytea) RETURNS SETOF webhook_secrets
LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := webhook_secrets_lock(p_tenant);
BEGIN
  PERFORM 1 FROM webhook_secrets WHERE tenant_id = p_tenant AND expires_at IS NULL;
  IF NOT FOUND THEN
    INSERT INTO webhook_secrets VALUES (p_tenant, p_secret, p_sealed, v_at);
  END IF;
  RETURN QUERY SELECT * FROM webhook_secrets_live(p_tenant);
END $$;

-- A new secret; the one before ends in p_overlap seconds, one before that at once.
CREATE OR REPLACE FUNCTION webhook_secrets_rotate(p_tenant text, p_secret text, p_sealed bytea, p_overlap double precision)
RETURNS SETOF webhook_secrets LANGUAGE plpgsql AS $$
DECLARE v_at timestamptz := webhook_secrets_lock(p_tenant);
BEGIN
  DELETE FROM webhook_secrets WHERE tenant_id = p_tenant AND expires_at IS NOT NULL;
  UPDATE webhook_secrets SET expires_at = v_at + make_interval(secs => p_overlap) WHERE tenant_id = p_tenant;
  INSERT INTO webhook_secrets VALUES (p_tenant, p_secret, p_sealed, v_at);
  RETURN QUERY SELECT * FROM webhook_secrets_live(p_tenant);
END $$;

-- Two rotations at once, or two first uses, take turns.
CREATE OR REPLACE FUNCTION webhook_secrets_lock(p_tenant text) RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ledger_enter(p_tenant);
  PERFORM pg_advisory_xact_lock(hashtextextended('webhook secrets of ' || p_tenant, 0));
  RETURN date_trunc('milliseconds', clock_timestamp());
END $$;
