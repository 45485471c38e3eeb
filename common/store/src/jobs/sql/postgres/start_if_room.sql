-- The conditions on lanes and workspaces do not depend on the row, so they are evaluated once. `value || ''` makes
-- the planner expect a single id.
UPDATE jobs
SET state = 'running', attempt = attempt + 1, fence = fence + 1, lease_until = $2, worker = $3
WHERE id IN (SELECT value::bigint FROM json_array_elements_text($1::json) WHERE value = value || '')
    AND NOT EXISTS (
        SELECT 1
        FROM (
            SELECT value ->> 0 AS lane, (value ->> 1)::bigint AS cap, (value ->> 2)::bigint AS jobs
            FROM json_array_elements($4::json)
        ) wanted
        WHERE wanted.lane IN (SELECT lane FROM paused_lanes WHERE paused_until > $6)
            OR coalesce((SELECT n.places FROM narrow_lanes n WHERE n.lane = wanted.lane), wanted.cap)
                - (SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = wanted.lane)
                < wanted.jobs
    )
    AND NOT EXISTS (
        SELECT 1
        FROM (
            SELECT value ->> 0 AS lane, (value ->> 1)::bigint AS cap, (value ->> 2)::bigint AS jobs
            FROM json_array_elements($5::json)
        ) wanted
        WHERE wanted.cap - (
                SELECT count(*)
                FROM jobs r
                WHERE r.state = 'running' AND r.workspace_lane = wanted.lane
            ) < wanted.jobs
    )
RETURNING id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence, worker, run_at, trace
