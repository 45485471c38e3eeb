-- Steps from one lane to the next in the index, so that a long queue in a lane costs no more than a short one.

-- The lanes in which jobs wait.
WITH RECURSIVE lanes (lane) AS (
    SELECT (SELECT lane FROM jobs WHERE state = 'ready' AND waiting AND lane IS NOT NULL ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.lane
        FROM jobs j
        WHERE j.state = 'ready' AND j.waiting AND j.lane > lanes.lane
        ORDER BY j.lane
        LIMIT 1
    )
    FROM lanes
    WHERE lanes.lane IS NOT NULL
),
-- Each lane that is not paused, with the job that waits longest, and the running jobs.
lane_heads AS MATERIALIZED (
    SELECT lane,
        (
            SELECT id
            FROM jobs j
            WHERE j.lane = lanes.lane
                AND j.state = 'ready'
                AND j.waiting
                AND coalesce(kind = ANY (ARRAY (SELECT json_array_elements_text($1::json))), FALSE)
            ORDER BY run_at, id
            LIMIT 1
        ) AS first_id,
        (SELECT count(*) FROM jobs j WHERE j.lane = lanes.lane AND j.state = 'running') AS running,
        (SELECT places FROM narrow_lanes n WHERE n.lane = lanes.lane) AS places
    FROM lanes
    WHERE lane IS NOT NULL AND lane NOT IN (SELECT lane FROM paused_lanes)
)
SELECT h.lane, j.kind, j.workspace_lane, h.running, h.places
FROM lane_heads h
-- `first_id + 0` makes the planner expect a single id. Otherwise it may read the whole table.
JOIN jobs j ON j.id = h.first_id AND h.first_id = h.first_id + 0
ORDER BY h.running
