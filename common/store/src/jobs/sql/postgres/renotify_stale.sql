-- $1: the time before which a job was last notified. $2: the maximum number of jobs. $3: now. $4: the kind.
--
-- `LIMIT (SELECT …)` and `id + 0` as in `promote_due.sql`.
WITH stale AS MATERIALIZED (
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
WHERE id IN (SELECT id FROM stale WHERE id = id + 0)
RETURNING kind, id, run_at
