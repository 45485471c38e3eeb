UPDATE jobs
SET state = 'ready', dispatched_at = $3
WHERE id IN (
    SELECT id
    FROM jobs
    WHERE kind = $4
        AND state = 'scheduled'
        AND run_at <= $1
    ORDER BY run_at
    LIMIT $2
)
RETURNING kind, id, priority, run_at
