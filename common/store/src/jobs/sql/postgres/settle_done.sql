-- `value || ''` makes the planner expect a single row. Otherwise it may read the whole table. `state || ''` keeps it from
-- reading the index of running jobs.
UPDATE jobs
SET state = 'done', last_error = NULL, finished_at = $2, lease_until = NULL
FROM (
    SELECT (value ->> 0)::bigint AS id, (value ->> 1)::bigint AS fence, value ->> 2 AS worker
    FROM json_array_elements($1::json)
    WHERE value ->> 0 = (value ->> 0) || ''
) held
WHERE jobs.id = held.id
    AND jobs.fence = held.fence
    AND jobs.worker = held.worker
    AND jobs.state || '' = 'running'
