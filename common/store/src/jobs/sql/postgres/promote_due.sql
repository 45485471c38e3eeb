-- `LIMIT (SELECT …)` hides the limit from the planner, so that it starts at the head of the right index. `id + 0` makes
-- it expect a single id. Otherwise it may read the whole table. SQLite needs neither.
WITH due AS MATERIALIZED (
    SELECT id
    FROM jobs
    WHERE kind = $3
        AND state = 'scheduled'
        AND run_at <= $1
    ORDER BY run_at
    LIMIT (SELECT $2)
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs
SET state = 'ready', dispatched_at = $1
WHERE id IN (SELECT id FROM due WHERE id = id + 0)
RETURNING kind, id, run_at
