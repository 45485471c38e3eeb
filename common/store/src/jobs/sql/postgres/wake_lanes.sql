-- $1: an array for each lane, with its name, the number of jobs to wake, the number of them to start, and the kind of
-- these. $2: now. $3: an array for each kind, with its name and the cap of its lanes. $4: the end of the leases. $5: the
-- worker. $6: the number of crashes from which on a job is not started. $7: periods that ended before it are not
-- extended.
--
-- As in a claim, the lanes are locked before their running jobs are counted: a job for which there is no place remains
-- waiting. SQLite has one writer, and needs no locks.

-- The lanes.
WITH requested AS MATERIALIZED (
    SELECT value ->> 0 AS name, (value ->> 1)::bigint AS wakes, (value ->> 2)::bigint AS starts, value ->> 3 AS kind
    FROM json_array_elements($1::json)
),
kinds AS MATERIALIZED (
    SELECT value ->> 0 AS kind, (value ->> 1)::bigint AS lane_cap
    FROM json_array_elements($3::json)
),
-- The commit does not wait for the disk.
unsynced AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', TRUE)
),
-- The lanes that are not paused, locked, with their running jobs.
freed AS MATERIALIZED (
    SELECT lane, wakes, starts, kind, places, running
    FROM lock_lanes(ARRAY (SELECT name FROM requested), '{}', $2)
    JOIN requested ON name = lane
    CROSS JOIN unsynced
    WHERE NOT paused
),
-- The jobs that have waited longest in each lane, locked. `ORDER BY lane` keeps the arrays in the same order.
waiting_jobs AS MATERIALIZED (
    SELECT id, lane, kind, crashes, row_number() OVER (PARTITION BY lane ORDER BY run_at, id) AS n
    FROM lock_waiting_jobs(
        ARRAY (SELECT lane FROM freed ORDER BY lane),
        ARRAY (SELECT wakes FROM freed ORDER BY lane),
        ARRAY (SELECT kind FROM kinds)
    )
),
-- Those for which there is a place, and whether they start.
woken AS MATERIALIZED (
    SELECT waiting_jobs.id, lane,
        n <= starts
            AND waiting_jobs.kind = freed.kind
            AND crashes < $6
            AND waiting_jobs.kind NOT IN (SELECT kind FROM paused_kinds) AS starts
    FROM waiting_jobs
    JOIN freed USING (lane)
    JOIN kinds ON kinds.kind = waiting_jobs.kind
    WHERE coalesce(n <= coalesce(places, lane_cap) - running, TRUE)
),
-- The lanes of accounts in which jobs wait: they were held back until now (`jobs/holds.rs`). `lane || ''` makes the
-- planner expect a single lane. Otherwise it may read all periods.
held_lanes AS MATERIALIZED (
    SELECT DISTINCT lane
    FROM waiting_jobs
    WHERE lane LIKE 'account:%' AND lane = lane || ''
),
-- Their periods. This query and the next one both see the periods as they were before the statement, so a lane is in at
-- most one of them. `+ interval '0'` keeps the planner from reading the index of the periods' ends.
extended_holds AS (
    UPDATE lane_holds
    SET held_until = $2
    FROM held_lanes
    WHERE lane_holds.lane = held_lanes.lane
        AND held_until + interval '0' >= $7
        AND held_until + interval '0' < $2
),
new_holds AS (
    INSERT INTO lane_holds (lane, held_since, held_until)
    SELECT lane, $2, $2
    FROM held_lanes
    WHERE NOT EXISTS (SELECT 1 FROM lane_holds h WHERE h.lane = held_lanes.lane AND h.held_until >= $7)
    ON CONFLICT DO NOTHING
)
UPDATE jobs
SET waiting = FALSE,
    dispatched_at = $2,
    state = CASE WHEN woken.starts THEN 'running' ELSE jobs.state END,
    attempt = CASE WHEN woken.starts THEN jobs.attempt + 1 ELSE jobs.attempt END,
    fence = CASE WHEN woken.starts THEN jobs.fence + 1 ELSE jobs.fence END,
    lease_until = CASE WHEN woken.starts THEN $4 ELSE jobs.lease_until END,
    worker = CASE WHEN woken.starts THEN $5 ELSE jobs.worker END
FROM woken
-- `id + 0` makes the planner expect a single id. Otherwise it may read the whole table.
WHERE jobs.id = woken.id AND woken.id = woken.id + 0
RETURNING jobs.id, jobs.kind, subject_id, jobs.lane, workspace_lane, attempt, max_attempts, jobs.crashes, fence,
    coalesce(worker, '') AS worker, jobs.run_at, trace, woken.starts AS started
