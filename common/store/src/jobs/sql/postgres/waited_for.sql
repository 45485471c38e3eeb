SELECT value, CAST(0 AS bigint)
FROM json_array_elements_text($1::json)
WHERE EXISTS (SELECT 1 FROM jobs WHERE lane = value AND state = 'ready' AND waiting)
UNION ALL
SELECT value, (SELECT count(*) FROM jobs WHERE workspace_lane = value AND state = 'running')
FROM json_array_elements_text($2::json)
WHERE EXISTS (SELECT 1 FROM jobs WHERE workspace_lane = value AND state = 'ready' AND waiting)
