SELECT value, (SELECT count(*) FROM jobs WHERE workspace_lane = value AND state = 'running')
FROM json_array_elements_text($1::json)
