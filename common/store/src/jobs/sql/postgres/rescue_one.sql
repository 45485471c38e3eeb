-- Skips a job that another scheduler rescues or that a worker settles.
SELECT id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence,
    coalesce(worker, '') AS worker, run_at, trace
FROM jobs
WHERE id = $2
    AND state = 'running'
    AND lease_until < $1
    AND coalesce(kind = ANY (ARRAY (SELECT json_array_elements_text($3::json))), FALSE)
FOR UPDATE SKIP LOCKED
