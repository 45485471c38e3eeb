SELECT id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence,
    coalesce(worker, '') AS worker, run_at, trace
FROM jobs
WHERE state = 'running'
    AND lease_until < $1
    AND kind IN (SELECT value FROM json_each($3))
ORDER BY lease_until
LIMIT $2
