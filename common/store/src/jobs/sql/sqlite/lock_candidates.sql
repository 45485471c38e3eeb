-- The only writer needs no locks.
SELECT id, kind, lane, workspace_lane
FROM jobs
WHERE id IN (SELECT value FROM json_each($1))
    AND state = 'ready'
    AND NOT waiting
    AND kind IN (SELECT value FROM json_each($2))
    AND kind NOT IN (SELECT kind FROM paused_kinds)
ORDER BY priority DESC, run_at, id
