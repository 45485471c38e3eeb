-- $1: the time before which a job was last notified. $2: the maximum number of jobs. $3: now. $4: the kind.
UPDATE jobs
SET dispatched_at = $3
WHERE id IN (
    SELECT id
    FROM jobs
    WHERE kind = $4
        AND state = 'ready'
        AND NOT waiting
        AND dispatched_at <= $1
    ORDER BY dispatched_at
    LIMIT $2
)
RETURNING kind, id, run_at
