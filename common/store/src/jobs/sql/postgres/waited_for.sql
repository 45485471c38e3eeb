-- `OFFSET 0` keeps Postgres from reading all waiting jobs into a hash table instead of looking up one of each lane.
SELECT value, CAST(0 AS bigint)
FROM json_array_elements_text($1::json)
WHERE EXISTS (SELECT 1 FROM jobs WHERE lane = value AND state = 'ready' AND waiting OFFSET 0)
UNION ALL
SELECT value, (SELECT count(*) FROM jobs WHERE workspace_lane = value AND state = 'running')
FROM json_array_elements_text($2::json)
WHERE EXISTS (SELECT 1 FROM jobs WHERE workspace_lane = value AND state = 'ready' AND waiting OFFSET 0)
