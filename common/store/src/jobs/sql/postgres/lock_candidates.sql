-- One look-up for each id: `LIMIT 1` keeps the look-ups apart, `state || ''` avoids the index of ready jobs. The
-- lanes are locked in the same statement, in the order of their bytes, and their load is read in the next one, which
-- sees what the previous holders of the locks have committed. A claim does not wait for the disk
-- (`synchronous_commit`).
WITH candidate AS MATERIALIZED (
    SELECT j.*
    FROM (
        SELECT DISTINCT value::bigint AS id
        FROM json_array_elements_text($1::json)
    ) v
    CROSS JOIN LATERAL (
        SELECT id, kind, lane, workspace_lane, priority, run_at
        FROM jobs
        WHERE id = v.id
            AND state || '' = 'ready'
            AND NOT waiting
            AND coalesce(kind = ANY (ARRAY (SELECT json_array_elements_text($2::json))), FALSE)
            AND kind NOT IN (SELECT kind FROM paused_kinds)
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) j
),
locked AS MATERIALIZED (
    SELECT count(pg_advisory_xact_lock(hashtextextended(lane, 0)))
    FROM (
        SELECT DISTINCT lane COLLATE "C" AS lane
        FROM candidate
        WHERE lane IS NOT NULL
        ORDER BY 1
    ) lanes
),
unsynced AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', TRUE)
)
SELECT id, kind, lane, workspace_lane
FROM candidate, locked, unsynced
ORDER BY priority DESC, run_at, id
