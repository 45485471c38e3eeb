INSERT INTO jobs (
    kind, subject_id, lane, state, waiting, run_at, max_attempts, trace, dispatched_at, created_at,
    workspace_lane
)
SELECT $2, (value ->> 0)::bigint, value ->> 1, $3, $4, $5, $6, $7, $8, $8, value ->> 2
FROM json_array_elements($1::json)
ON CONFLICT DO NOTHING
RETURNING id
