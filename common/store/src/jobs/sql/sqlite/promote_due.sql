UPDATE jobs
SET state = 'ready', dispatched_at = $1
WHERE id IN (
    SELECT id
    FROM jobs
    WHERE kind = $3
        AND state = 'scheduled'
        AND run_at <= $1
    ORDER BY run_at
    LIMIT $2
)
RETURNING kind, id, run_at
