-- $1: the time before which a job was last notified. $2: the maximum number of jobs. $3: now. $4: the kind. $5: the cap
-- of its lanes. A job whose lane has no free place is set waiting.
--
-- Unlike on SQLite, the number of running jobs may be outdated, because no lane is locked: a lane in which no job was
-- notified is checked again after the commit, as after a claim.

-- The jobs. `LIMIT (SELECT …)` hides the limit from the planner, so that it starts at the head of the right index.
WITH stale AS MATERIALIZED (
    SELECT id, lane, priority, run_at
    FROM jobs
    WHERE kind = $4
        AND state = 'ready'
        AND NOT waiting
        AND dispatched_at <= $1
    ORDER BY dispatched_at
    LIMIT (SELECT $2)
    FOR UPDATE SKIP LOCKED
),
-- Their lanes, with the running jobs. `OFFSET 0` keeps the planner from reading all paused lanes at once.
load AS MATERIALIZED (
    SELECT lane AS name,
        (SELECT count(*) FROM jobs r WHERE r.lane = needed.lane AND r.state = 'running') AS running,
        EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = needed.lane AND p.paused_until > $3 OFFSET 0) AS paused,
        (SELECT n.places FROM narrow_lanes n WHERE n.lane = needed.lane) AS places
    FROM (SELECT DISTINCT lane FROM stale WHERE $5::bigint IS NOT NULL) needed
),
-- The jobs, and whether their lanes have places for them.
placed AS MATERIALIZED (
    SELECT stale.id,
        coalesce(
            NOT load.paused
                AND row_number() OVER (PARTITION BY stale.lane ORDER BY stale.priority DESC, stale.run_at, stale.id)
                    <= coalesce(load.places, $5) - load.running,
            TRUE
        ) AS has_place
    FROM stale
    LEFT JOIN load ON load.name = stale.lane
)
UPDATE jobs
SET dispatched_at = $3, waiting = NOT has_place
FROM placed
-- `id + 0` makes the planner expect a single id. Otherwise it may read the whole table.
WHERE jobs.id = placed.id AND placed.id = placed.id + 0
RETURNING kind, jobs.id, priority, run_at, lane, waiting
