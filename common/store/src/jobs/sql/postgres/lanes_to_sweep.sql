-- Steps from one lane to the next in the index, so that a long queue in a lane costs no more than a short one. `id + 0`
-- makes the planner expect a single id.
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
found AS MATERIALIZED (
    SELECT
        lane,
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
SELECT f.lane, j.kind, j.workspace_lane, f.running, f.places
FROM found f
JOIN jobs j ON j.id = f.first_id AND f.first_id = f.first_id + 0
ORDER BY f.running
