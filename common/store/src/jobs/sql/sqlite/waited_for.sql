SELECT value, CAST(0 AS bigint)
FROM json_each($1)
WHERE EXISTS (SELECT 1 FROM jobs WHERE lane = value AND state = 'ready' AND waiting)
UNION ALL
SELECT value, (SELECT count(*) FROM jobs WHERE workspace_lane = value AND state = 'running')
FROM json_each($2)
WHERE EXISTS (SELECT 1 FROM jobs WHERE workspace_lane = value AND state = 'ready' AND waiting)
