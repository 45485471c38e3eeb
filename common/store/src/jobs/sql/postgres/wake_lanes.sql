-- $1: an array for each lane, with its name, the number of jobs to wake, the number of them to start, and the kind of
-- these. $3: an array for each kind, with its name and the cap of its lanes. As in a claim, the lane is locked and its
-- running jobs are counted: a job for which there is no place remains waiting. `id + 0` and `lane || ''` make the
-- planner expect a single row, and `+ interval '0'` avoids the index of the periods' ends.
--
-- Records that the lanes of accounts in which jobs wait were held back until now (`jobs/holds.rs`). `longer` and
-- `first` both see the periods as they were before the statement. Nothing waits for the disk (`synchronous_commit`).
WITH requested AS MATERIALIZED (
    SELECT value ->> 0 AS name, (value ->> 1)::bigint AS wakes, (value ->> 2)::bigint AS starts, value ->> 3 AS kind
    FROM json_array_elements($1::json)
),
kinds AS MATERIALIZED (
    SELECT value ->> 0 AS kind, (value ->> 1)::bigint AS lane_cap
    FROM json_array_elements($3::json)
),
unsynced AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', TRUE)
),
freed AS MATERIALIZED (
    SELECT lane, wakes, starts, kind, places, running
    FROM lock_lanes(ARRAY (SELECT name FROM requested), '{}', $2)
    JOIN requested ON name = lane
    CROSS JOIN unsynced
    WHERE NOT paused
),
next AS MATERIALIZED (
    SELECT id, lane, kind, crashes, row_number() OVER (PARTITION BY lane ORDER BY run_at, id) AS n
    FROM lock_waiting_jobs(
        ARRAY (SELECT lane FROM freed ORDER BY lane),
        ARRAY (SELECT wakes FROM freed ORDER BY lane),
        ARRAY (SELECT kind FROM kinds)
    )
),
found AS MATERIALIZED (
    SELECT next.id, lane,
        n <= starts
            AND next.kind = freed.kind
            AND crashes < $6
            AND next.kind NOT IN (SELECT kind FROM paused_kinds) AS starts
    FROM next
    JOIN freed USING (lane)
    JOIN kinds ON kinds.kind = next.kind
    WHERE coalesce(n <= coalesce(places, lane_cap) - running, TRUE)
),
held AS MATERIALIZED (
    SELECT DISTINCT lane
    FROM next
    WHERE lane LIKE 'account:%' AND lane = lane || ''
),
longer AS (
    UPDATE lane_holds
    SET held_until = $2
    FROM held
    WHERE lane_holds.lane = held.lane AND held_until + interval '0' >= $7 AND held_until + interval '0' < $2
),
first AS (
    INSERT INTO lane_holds (lane, held_since, held_until)
    SELECT lane, $2, $2
    FROM held
    WHERE NOT EXISTS (SELECT 1 FROM lane_holds h WHERE h.lane = held.lane AND h.held_until >= $7)
    ON CONFLICT DO NOTHING
)
UPDATE jobs
SET waiting = FALSE,
    dispatched_at = $2,
    state = CASE WHEN found.starts THEN 'running' ELSE jobs.state END,
    attempt = CASE WHEN found.starts THEN jobs.attempt + 1 ELSE jobs.attempt END,
    fence = CASE WHEN found.starts THEN jobs.fence + 1 ELSE jobs.fence END,
    lease_until = CASE WHEN found.starts THEN $4 ELSE jobs.lease_until END,
    worker = CASE WHEN found.starts THEN $5 ELSE jobs.worker END
FROM found
WHERE jobs.id = found.id AND found.id = found.id + 0
RETURNING jobs.id, jobs.kind, subject_id, jobs.lane, workspace_lane, attempt, max_attempts, jobs.crashes, fence,
    coalesce(worker, '') AS worker, jobs.run_at, trace, priority, found.starts AS started
