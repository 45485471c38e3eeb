-- $3: now. $5: the cap of the kind's lanes. A job whose lane has no free place is set waiting. No lane is locked, so
-- the count may be outdated: a lane in which no job was notified is checked again after the commit
-- (`is_waited_for.sql`).
--
-- `LIMIT (SELECT …)` hides the limit from the planner, so that it starts at the head of the right index. `id + 0` makes
-- it expect a single id.
WITH found AS MATERIALIZED (
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
load AS MATERIALIZED (
    SELECT lane AS name,
        (SELECT count(*) FROM jobs r WHERE r.lane = needed.lane AND r.state = 'running') AS running,
        EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = needed.lane AND p.paused_until > $3 OFFSET 0) AS paused,
        (SELECT n.places FROM narrow_lanes n WHERE n.lane = needed.lane) AS places
    FROM (SELECT DISTINCT lane FROM found WHERE $5::bigint IS NOT NULL) needed
),
placed AS MATERIALIZED (
    SELECT found.id,
        coalesce(
            NOT load.paused
                AND row_number() OVER (PARTITION BY found.lane ORDER BY found.priority DESC, found.run_at, found.id)
                    <= coalesce(load.places, $5) - load.running,
            TRUE
        ) AS has_place
    FROM found
    LEFT JOIN load ON load.name = found.lane
)
UPDATE jobs
SET dispatched_at = $3, waiting = NOT has_place
FROM placed
WHERE jobs.id = placed.id AND placed.id = placed.id + 0
RETURNING kind, jobs.id, priority, run_at, lane, waiting
