-- `LIMIT (SELECT …)` hides the limit from the planner, so that it starts at the head of the right index; `id + 0`
-- makes it expect a single id.
WITH found AS MATERIALIZED (
    SELECT id
    FROM jobs
    WHERE lane = $1
        AND state = 'ready'
        AND waiting
        AND coalesce(kind = ANY (ARRAY (SELECT json_array_elements_text($4::json))), FALSE)
        AND NOT EXISTS (
            SELECT 1
            FROM paused_lanes p
            WHERE p.lane = $1 AND p.paused_until > $3
        )
    ORDER BY run_at, id
    LIMIT (SELECT $2)
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs
SET waiting = FALSE, dispatched_at = $3
WHERE id IN (SELECT id FROM found WHERE id = id + 0)
RETURNING kind, id, priority, run_at
