-- `state || ''` keeps SQLite from reading the index of running jobs.
UPDATE jobs
SET state = 'done', last_error = NULL, finished_at = $2, lease_until = NULL
FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS fence, value ->> 2 AS worker
    FROM json_each($1)
) held
WHERE jobs.id = held.id
    AND jobs.fence = held.fence
    AND jobs.worker = held.worker
    AND jobs.state || '' = 'running'
