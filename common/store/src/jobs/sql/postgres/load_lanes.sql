SELECT value AS lane,
    (SELECT count(*) FROM jobs WHERE state = 'running' AND lane = value) AS running,
    value IN (SELECT lane FROM paused_lanes WHERE paused_until > $2) AS paused,
    (SELECT places FROM narrow_lanes WHERE lane = value) AS places
FROM json_array_elements_text($1::json)
