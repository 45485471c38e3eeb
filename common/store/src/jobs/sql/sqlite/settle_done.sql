-- No claim runs between this statement and its commit, so only waiting jobs must be checked (on Postgres, see
-- `is_waited_for.sql`). `state || ''` keeps SQLite from reading the index of running jobs.
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
RETURNING EXISTS (SELECT 1 FROM jobs w WHERE w.lane = jobs.lane AND w.state = 'ready' AND w.waiting)
    OR EXISTS (
        SELECT 1
        FROM jobs w
        WHERE w.workspace_lane = jobs.workspace_lane AND w.state = 'ready' AND w.waiting
    )
