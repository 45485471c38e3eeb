-- Three statements. $1: an array for each lane, with its name, the number of jobs to wake, the number of them to start,
-- and the kind of these. $2: now. $3: an array for each kind, with its name and the cap of its lanes. $4: the end of the
-- leases. $5: the worker. $6: the number of crashes from which on a job is not started. $7: periods that ended
-- before it are not extended.
--
-- As in a claim, the lanes' running jobs are counted: a job for which there is no place remains waiting. Unlike on
-- Postgres, no other transaction writes meanwhile. So nothing is locked, and the periods can be written first.

-- The lanes of accounts in which jobs wait: they were held back until now (`jobs/holds.rs`).
WITH held_lanes AS MATERIALIZED (
    SELECT value ->> 0 AS lane
    FROM json_each($1)
    WHERE value ->> 0 LIKE 'account:%'
        AND NOT EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = value ->> 0 AND p.paused_until > $2)
        AND EXISTS (
            SELECT 1
            FROM jobs j
            WHERE j.lane = value ->> 0
                AND j.state = 'ready'
                AND j.waiting
                AND j.kind IN (SELECT k.value ->> 0 FROM json_each($3) k)
        )
)
INSERT INTO lane_holds (lane, held_since, held_until)
SELECT lane, $2, $2
FROM held_lanes
WHERE NOT EXISTS (SELECT 1 FROM lane_holds h WHERE h.lane = held_lanes.lane AND h.held_until >= $7)
ON CONFLICT DO NOTHING;
-- The same lanes.
WITH held_lanes AS MATERIALIZED (
    SELECT value ->> 0 AS lane
    FROM json_each($1)
    WHERE value ->> 0 LIKE 'account:%'
        AND NOT EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = value ->> 0 AND p.paused_until > $2)
        AND EXISTS (
            SELECT 1
            FROM jobs j
            WHERE j.lane = value ->> 0
                AND j.state = 'ready'
                AND j.waiting
                AND j.kind IN (SELECT k.value ->> 0 FROM json_each($3) k)
        )
)
UPDATE lane_holds
SET held_until = $2
FROM held_lanes
-- `lane || ''` keeps SQLite from scanning the periods and looking up each of them in `held_lanes`.
WHERE lane_holds.lane = held_lanes.lane || ''
    AND held_until >= $7
    AND held_until < $2;

-- `waiting_jobs` steps from one waiting job of a lane to the next, because a limit cannot depend on the lane.
WITH RECURSIVE requested AS MATERIALIZED (
    SELECT value ->> 0 AS name, value ->> 1 AS wakes, value ->> 2 AS starts, value ->> 3 AS kind
    FROM json_each($1)
),
kinds AS MATERIALIZED (
    SELECT value ->> 0 AS kind, value ->> 1 AS lane_cap
    FROM json_each($3)
),
-- The lanes that are not paused, with their running jobs.
freed AS MATERIALIZED (
    SELECT name AS lane, wakes, starts, kind,
        (SELECT n.places FROM narrow_lanes n WHERE n.lane = name) AS places,
        (SELECT count(*) FROM jobs r WHERE r.lane = name AND r.state = 'running') AS running
    FROM requested
    WHERE NOT EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = name AND p.paused_until > $2)
),
-- The jobs that have waited longest in each lane.
waiting_jobs (lane, n, id) AS (
    SELECT lane, 1, (
        SELECT j.id
        FROM jobs j
        WHERE j.lane = freed.lane
            AND j.state = 'ready'
            AND j.waiting
            AND j.kind IN (SELECT kind FROM kinds)
        ORDER BY j.run_at, j.id
        LIMIT 1
    )
    FROM freed
    WHERE wakes > 0
    UNION ALL
    SELECT waiting_jobs.lane, n + 1, (
        SELECT j.id
        FROM jobs j
        WHERE j.lane = waiting_jobs.lane
            AND j.state = 'ready'
            AND j.waiting
            AND j.kind IN (SELECT kind FROM kinds)
            AND (j.run_at, j.id) > (SELECT p.run_at, p.id FROM jobs p WHERE p.id = waiting_jobs.id)
        ORDER BY j.run_at, j.id
        LIMIT 1
    )
    FROM waiting_jobs
    JOIN freed ON freed.lane = waiting_jobs.lane
    WHERE waiting_jobs.id IS NOT NULL AND n < wakes
),
-- Those for which there is a place, and whether they start.
woken AS MATERIALIZED (
    SELECT waiting_jobs.id AS woken_id,
        n <= freed.starts
            AND j.kind = freed.kind
            AND j.crashes < $6
            AND j.kind NOT IN (SELECT kind FROM paused_kinds) AS starts
    FROM waiting_jobs
    JOIN freed ON freed.lane = waiting_jobs.lane
    -- `CROSS JOIN` keeps SQLite from reading all jobs of the kinds and looking up each of them in `waiting_jobs`.
    CROSS JOIN jobs j ON j.id = waiting_jobs.id
    CROSS JOIN kinds ON kinds.kind = j.kind
    WHERE coalesce(n <= coalesce(places, lane_cap) - running, TRUE)
)
UPDATE jobs
SET waiting = FALSE,
    dispatched_at = $2,
    state = CASE WHEN starts THEN 'running' ELSE state END,
    attempt = CASE WHEN starts THEN attempt + 1 ELSE attempt END,
    fence = CASE WHEN starts THEN fence + 1 ELSE fence END,
    lease_until = CASE WHEN starts THEN $4 ELSE lease_until END,
    worker = CASE WHEN starts THEN $5 ELSE worker END
FROM woken
-- `woken_id + 0` keeps SQLite from scanning the table and looking up each row in `woken`.
WHERE jobs.id = woken_id + 0
RETURNING id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence,
    coalesce(worker, '') AS worker, run_at, trace, state = 'running' AS started
