-- The events' partitions: one a month, by the time inside the UUIDv7 task ids. Called by the tables' owner only.
-- There is no DEFAULT partition, for it would fill; a missing one is an outage that maintenance prevents.
CREATE OR REPLACE FUNCTION events_partitions_ensure(p_from date, p_months int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE a timestamptz; b timestamptz; v_name text; v_made int := 0;
BEGIN
  FOR i IN 0..p_months - 1 LOOP
    a := date_trunc('month', p_from::timestamp + i * interval '1 month') AT TIME ZONE 'UTC';
    b := date_trunc('month', p_from::timestamp + (i + 1) * interval '1 month') AT TIME ZONE 'UTC';
    v_name := 'events_' || to_char(a AT TIME ZONE 'UTC', 'YYYYMM');
    CONTINUE WHEN to_regclass(v_name) IS NOT NULL;
    EXECUTE format('CREATE TABLE %I PARTITION OF events FOR VALUES FROM (%L) TO (%L)', v_name, uuid_floor(a), uuid_floor(b));
    v_made := v_made + 1;
  END LOOP;
  RETURN v_made;
END $$;

CREATE OR REPLACE FUNCTION uuid_floor(p_at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS
$$ SELECT rpad(lpad(to_hex((extract(epoch FROM p_at) * 1000)::bigint), 12, '0'), 32, '0')::uuid $$;
