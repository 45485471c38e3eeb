-- $1: an array for each lane, with its name, how many jobs are woken, how many of them are started, and the kind of these
-- with its cap. A started job is claimed: the lane's lock is held, and its running jobs are counted, as in a claim. The
-- variable limit lets the planner start at the head of the index of the lane's waiting jobs; `id + 0` makes it expect a
-- single id.
WITH freed AS MATERIALIZED (
    SELECT value ->> 0 AS lane, (value ->> 1)::bigint AS places, value ->> 3 AS kind,
        CASE
            WHEN (value ->> 2)::bigint > 0 THEN least(
                (value ->> 2)::bigint,
                coalesce((SELECT n.places FROM narrow_lanes n WHERE n.lane = value ->> 0), (value ->> 4)::bigint)
                    - (SELECT count(*) FROM jobs r WHERE r.lane = value ->> 0 AND r.state = 'running')
            )
            ELSE 0
        END AS starts
    FROM json_array_elements($1::json)
    WHERE NOT EXISTS (
        SELECT 1
        FROM paused_lanes p
        WHERE p.lane = value ->> 0 AND p.paused_until > $2
    )
),
found AS MATERIALIZED (
    SELECT j.id,
        row_number() OVER (PARTITION BY freed.lane ORDER BY j.run_at, j.id) <= freed.starts
            AND j.kind = freed.kind
            AND j.crashes < $6
            AND j.kind NOT IN (SELECT kind FROM paused_kinds) AS starts
    FROM freed
    CROSS JOIN LATERAL (
        SELECT id, kind, run_at, crashes
        FROM jobs
        WHERE lane = freed.lane
            AND state = 'ready'
            AND waiting
            AND coalesce(kind = ANY (ARRAY (SELECT json_array_elements_text($3::json))), FALSE)
        ORDER BY run_at, id
        LIMIT freed.places
        FOR UPDATE SKIP LOCKED
    ) j
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
RETURNING jobs.id, jobs.kind, subject_id, lane, workspace_lane, attempt, max_attempts, jobs.crashes, fence,
    coalesce(worker, '') AS worker, jobs.run_at, trace, priority, found.starts AS started
