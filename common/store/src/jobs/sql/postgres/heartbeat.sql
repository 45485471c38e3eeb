-- `SKIP LOCKED` skips a row that a settle or a rescue has locked: waiting for it while holding others could deadlock.
-- `LIMIT 1` keeps the planner from joining all ids with the table instead of looking up each of them. `state || ''`
-- keeps it from reading the index of running jobs. `id + 0` makes it expect a single id. Otherwise it may read the whole
-- table. SQLite needs none of these.
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
