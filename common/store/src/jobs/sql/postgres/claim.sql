-- $1: the ids. $2: an array for each kind, with its name and the caps of its lanes and of a workspace. $3: now. $4: the
-- end of the leases. $5: the worker.
--
-- A job has a place if its lane has places for it and for those before it. Of these jobs, the first ones of a workspace
-- start, until its share is full. The others are set waiting.
--
-- Unlike on SQLite, other claims and settles write at the same time. So the lanes are locked before their running jobs
-- are counted (`lock_lanes`), and a job that another transaction has locked is skipped.
WITH kinds AS MATERIALIZED (
    SELECT value ->> 0 AS kind, (value ->> 1)::bigint AS lane_cap, (value ->> 2)::bigint AS workspace_cap
    FROM json_array_elements($2::json)
    WHERE value ->> 0 NOT IN (SELECT kind FROM paused_kinds)
),
-- The commit does not wait for the disk.
unsynced AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', TRUE)
),
-- The ready jobs among the ids. `LIMIT 1` keeps the planner from joining all ids with the table instead of looking up
-- each of them. `state || ''` keeps it from reading the index of ready jobs.
candidates AS MATERIALIZED (
    SELECT j.*
    FROM (
        SELECT DISTINCT value::bigint AS id
        FROM json_array_elements_text($1::json)
    ) v
    CROSS JOIN LATERAL (
        SELECT id, kind, lane, workspace_lane, run_at
        FROM jobs
        WHERE id = v.id
            AND state || '' = 'ready'
            AND NOT waiting
            AND coalesce(kind = ANY (ARRAY (SELECT kind FROM kinds)), FALSE)
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) j
    CROSS JOIN unsynced
),
-- The lanes of the candidates, locked, and those of their workspaces, with their running jobs.
load AS MATERIALIZED (
    SELECT lane AS name, running, paused, places
    FROM lock_lanes(
        ARRAY (SELECT lane FROM candidates WHERE lane IS NOT NULL),
        ARRAY (SELECT workspace_lane FROM candidates WHERE workspace_lane IS NOT NULL),
        $3
    )
),
-- The candidates, and whether their lanes have places for them.
placed AS MATERIALIZED (
    SELECT c.*, k.workspace_cap,
        coalesce(
            NOT l.paused
                AND row_number() OVER (PARTITION BY c.lane ORDER BY c.run_at, c.id)
                    <= coalesce(l.places, k.lane_cap) - l.running,
            TRUE
        ) AS has_place
    FROM candidates c
    JOIN kinds k USING (kind)
    LEFT JOIN load l ON l.name = c.lane AND k.lane_cap IS NOT NULL
),
-- The candidates, and whether they start.
decided AS MATERIALIZED (
    SELECT p.id, has_place,
        has_place AND coalesce(
            row_number() OVER (
                PARTITION BY p.workspace_lane, has_place
                ORDER BY p.run_at, p.id
            ) <= p.workspace_cap - w.running,
            TRUE
        ) AS starts
    FROM placed p
    LEFT JOIN load w ON w.name = p.workspace_lane
)
UPDATE jobs
SET waiting = NOT starts,
    state = CASE WHEN starts THEN 'running' ELSE state END,
    attempt = CASE WHEN starts THEN attempt + 1 ELSE attempt END,
    fence = CASE WHEN starts THEN fence + 1 ELSE fence END,
    lease_until = CASE WHEN starts THEN $4 ELSE lease_until END,
    worker = CASE WHEN starts THEN $5 ELSE worker END
FROM decided
-- `id + 0` makes the planner expect a single id. Otherwise it may read the whole table.
WHERE jobs.id = decided.id AND decided.id = decided.id + 0
RETURNING jobs.id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence,
    coalesce(worker, '') AS worker, run_at, trace, starts AS started, NOT has_place AS lane_is_full
