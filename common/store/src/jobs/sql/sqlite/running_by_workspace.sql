SELECT value, (SELECT count(*) FROM jobs WHERE workspace_lane = value AND state = 'running')
FROM json_each($1)
