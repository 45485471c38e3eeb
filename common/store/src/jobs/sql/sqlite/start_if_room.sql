-- The conditions on lanes and workspaces do not depend on the row, so they are evaluated once.
UPDATE jobs
SET state = 'running', attempt = attempt + 1, fence = fence + 1, lease_until = $2, worker = $3
WHERE id IN (SELECT value FROM json_each($1))
    AND NOT EXISTS (
        SELECT 1
        FROM (
            SELECT value ->> 0 AS lane, value ->> 1 AS cap, value ->> 2 AS jobs
            FROM json_each($4)
        ) wanted
        WHERE wanted.lane IN (SELECT lane FROM paused_lanes WHERE paused_until > $6)
            OR coalesce((SELECT n.places FROM narrow_lanes n WHERE n.lane = wanted.lane), wanted.cap)
                - (SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = wanted.lane)
                < wanted.jobs
    )
    AND NOT EXISTS (
        SELECT 1
        FROM (
            SELECT value ->> 0 AS lane, value ->> 1 AS cap, value ->> 2 AS jobs
            FROM json_each($5)
        ) wanted
        WHERE wanted.cap - (
                SELECT count(*)
                FROM jobs r
                WHERE r.state = 'running' AND r.workspace_lane = wanted.lane
            ) < wanted.jobs
    )
RETURNING id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence, worker, run_at, trace
