-- Three statements. $1: an array for each lane, with its name, the number of jobs to wake, the number of them to start,
-- and the kind of these. $2: now. $3: an array for each kind, with its name and the cap of its lanes. $4: the end of the
-- leases. $5: the worker. $6: the number of crashes from which on a job is not started. $7: periods that ended
-- before it are not extended.

-- Records that the lanes of accounts in which jobs wait were held back until now (`jobs/holds.rs`).
INSERT INTO lane_holds (lane, held_since, held_until)
SELECT value ->> 0, $2, $2
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
    AND NOT EXISTS (SELECT 1 FROM lane_holds h WHERE h.lane = value ->> 0 AND h.held_until >= $7)
ON CONFLICT DO NOTHING;
UPDATE lane_holds
SET held_until = $2
FROM json_each($1)
WHERE lane = value ->> 0
    AND lane LIKE 'account:%'
    AND held_until >= $7
    AND held_until < $2
    AND NOT EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = lane_holds.lane AND p.paused_until > $2)
    AND EXISTS (
        SELECT 1
        FROM jobs j
        WHERE j.lane = lane_holds.lane
            AND j.state = 'ready'
            AND j.waiting
            AND j.kind IN (SELECT k.value ->> 0 FROM json_each($3) k)
    );

-- As in a claim, the lane's running jobs are counted: a job for which there is no place remains waiting. `waiting_jobs`
-- steps from one waiting job of a lane to the next, because a limit cannot depend on the lane.
WITH RECURSIVE kinds AS MATERIALIZED (
    SELECT value ->> 0 AS kind, value ->> 1 AS lane_cap
    FROM json_each($3)
),
freed AS MATERIALIZED (
    SELECT value ->> 0 AS lane, value ->> 1 AS wakes, value ->> 2 AS starts, value ->> 3 AS kind,
        (SELECT n.places FROM narrow_lanes n WHERE n.lane = value ->> 0) AS places,
        (SELECT count(*) FROM jobs r WHERE r.lane = value ->> 0 AND r.state = 'running') AS running
    FROM json_each($1)
    WHERE NOT EXISTS (
        SELECT 1
        FROM paused_lanes p
        WHERE p.lane = value ->> 0 AND p.paused_until > $2
    )
),
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
)
UPDATE jobs
SET waiting = FALSE,
    dispatched_at = $2,
    state = CASE WHEN started THEN 'running' ELSE state END,
    attempt = CASE WHEN started THEN attempt + 1 ELSE attempt END,
    fence = CASE WHEN started THEN fence + 1 ELSE fence END,
    lease_until = CASE WHEN started THEN $4 ELSE lease_until END,
    worker = CASE WHEN started THEN $5 ELSE worker END
FROM (
    SELECT waiting_jobs.id AS woken_id,
        n <= starts
            AND j.kind = freed.kind
            AND j.crashes < $6
            AND j.kind NOT IN (SELECT kind FROM paused_kinds) AS started
    FROM waiting_jobs
    JOIN freed ON freed.lane = waiting_jobs.lane
    JOIN jobs j ON j.id = waiting_jobs.id
    JOIN kinds ON kinds.kind = j.kind
    WHERE coalesce(n <= coalesce(places, lane_cap) - running, TRUE)
) woken
WHERE jobs.id = woken_id
RETURNING id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence,
    coalesce(worker, '') AS worker, run_at, trace, priority, state = 'running' AS started
