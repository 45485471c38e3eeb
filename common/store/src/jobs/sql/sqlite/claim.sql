-- $1: the ids. $2: an array for each kind, with its name and the caps of its lanes and of a workspace. $3: now. $4: the
-- end of the leases. $5: the worker.
--
-- A job has a place if its lane has places for it and for those before it. Of these jobs, the first ones of a workspace
-- start, until its share is full. The others are set waiting.
--
-- Unlike on Postgres, no other transaction writes between this statement and its commit. So nothing is locked, and no
-- lane of a waiting job can get a free place meanwhile: `lane_is_full` is always false.
WITH kinds AS MATERIALIZED (
    SELECT value ->> 0 AS kind, value ->> 1 AS lane_cap, value ->> 2 AS workspace_cap
    FROM json_each($2)
    WHERE value ->> 0 NOT IN (SELECT kind FROM paused_kinds)
),
-- The ready jobs among the ids. `state || ''` keeps SQLite from reading the index of ready jobs.
candidates AS MATERIALIZED (
    SELECT id, kind, lane, workspace_lane, run_at
    FROM jobs
    WHERE id IN (SELECT value FROM json_each($1))
        AND state || '' = 'ready'
        AND NOT waiting
        AND kind IN (SELECT kind FROM kinds)
),
-- The lanes of the candidates and of their workspaces, with their running jobs.
load AS MATERIALIZED (
    SELECT lane AS name,
        (SELECT count(*) FROM jobs r WHERE r.lane = needed.lane AND r.state = 'running') AS running,
        EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = needed.lane AND p.paused_until > $3) AS paused,
        (SELECT n.places FROM narrow_lanes n WHERE n.lane = needed.lane) AS places
    FROM (SELECT DISTINCT lane FROM candidates WHERE lane IS NOT NULL) needed
    UNION ALL
    SELECT workspace_lane,
        (SELECT count(*) FROM jobs r WHERE r.workspace_lane = needed.workspace_lane AND r.state = 'running'),
        FALSE,
        NULL
    FROM (SELECT DISTINCT workspace_lane FROM candidates WHERE workspace_lane IS NOT NULL) needed
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
    SELECT p.id AS decided_id,
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
-- `decided_id + 0` keeps SQLite from scanning the table and looking up each row in `decided`.
WHERE jobs.id = decided_id + 0
RETURNING id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence,
    coalesce(worker, '') AS worker, run_at, trace, NOT waiting AS started, FALSE AS lane_is_full
