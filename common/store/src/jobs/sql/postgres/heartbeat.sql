-- Skips a row that a settle or a rescue has locked: waiting for it while holding others could deadlock. `id + 0`
-- makes the planner expect a single id.
WITH held AS MATERIALIZED (
    SELECT j.id
    FROM (
        SELECT DISTINCT value::bigint AS id
        FROM json_array_elements_text($1::json)
    ) v
    CROSS JOIN LATERAL (
        SELECT id
        FROM jobs
        WHERE id = v.id
            AND worker = $3
            AND state || '' = 'running'
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) j
)
UPDATE jobs
SET lease_until = $2
WHERE id IN (SELECT id FROM held WHERE id = id + 0)
