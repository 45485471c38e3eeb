-- `LIMIT (SELECT …)` hides the limit from the planner, so that it starts at the head of the right index; `id + 0`
-- makes it expect a single id.
WITH found AS MATERIALIZED (
    SELECT id
    FROM jobs
    WHERE kind = $4
        AND state = 'ready'
        AND NOT waiting
        AND dispatched_at <= $1
    ORDER BY dispatched_at
    LIMIT (SELECT $2)
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs
SET dispatched_at = $3
WHERE id IN (SELECT id FROM found WHERE id = id + 0)
RETURNING kind, id, priority, run_at
