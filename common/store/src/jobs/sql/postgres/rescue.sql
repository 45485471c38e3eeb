-- Skips jobs that another scheduler rescues. `LIMIT (SELECT …)` hides the limit from the planner, so that it starts at
-- the head of the index of leases.
SELECT id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence,
    coalesce(worker, '') AS worker, run_at, trace
FROM jobs
WHERE state = 'running'
    AND lease_until < $1
    AND coalesce(kind = ANY (ARRAY (SELECT json_array_elements_text($3::json))), FALSE)
ORDER BY lease_until
LIMIT (SELECT $2)
FOR UPDATE SKIP LOCKED
