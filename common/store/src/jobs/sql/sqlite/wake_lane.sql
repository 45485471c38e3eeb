UPDATE jobs
SET waiting = FALSE, dispatched_at = $3
WHERE id IN (
    SELECT id
    FROM jobs
    WHERE lane = $1
        AND state = 'ready'
        AND waiting
        AND kind IN (SELECT value FROM json_each($4))
        AND NOT EXISTS (
            SELECT 1
            FROM paused_lanes p
            WHERE p.lane = $1 AND p.paused_until > $3
        )
    ORDER BY run_at, id
    LIMIT $2
)
RETURNING kind, id, priority, run_at
