-- Part of two statements: whether a settle must check the lanes ($3) and the shares of workspaces ($4) that it leaves
-- again after its commit. It must if a job waits for one of them, or if as many jobs run in one as its cap allows.
-- `OFFSET 0` keeps Postgres from reading all waiting jobs into a hash table instead of looking up one of each lane.
--
-- This is sufficient: a claim (or `renotify_stale.sql`, in the same way) may set a job waiting while a settle is
-- between its statement and its commit. Then the statement does not see the job, and the claim's second check
-- (`wake_lanes`) does not see the free place. At that second check, as many jobs run as the cap allows. Of these,
-- consider the one whose settle statement begins last. If it begins after the claim's commit, it finds the waiting job.
-- Otherwise all of them are claimed by then and none of their settles is committed, so it finds the lane full. In both
-- cases, it checks again after its commit. A job waits for the sweep only if the lane was narrowed meanwhile, or if its
-- kind has a smaller cap than theirs.
(
    EXISTS (
        SELECT 1
        FROM json_array_elements($3::json) own (place)
        WHERE EXISTS (
                SELECT 1
                FROM jobs w
                WHERE w.lane = place ->> 0 AND w.state = 'ready' AND w.waiting
                OFFSET 0
            )
            OR (
                SELECT count(*)
                FROM jobs r
                WHERE r.lane = place ->> 0 AND r.state = 'running'
            ) >= coalesce(
                (SELECT n.places FROM narrow_lanes n WHERE n.lane = place ->> 0),
                (place ->> 1)::bigint
            )
    )
    OR EXISTS (
        SELECT 1
        FROM json_array_elements($4::json) own (place)
        WHERE EXISTS (
                SELECT 1
                FROM jobs w
                WHERE w.workspace_lane = place ->> 0 AND w.state = 'ready' AND w.waiting
                OFFSET 0
            )
            OR (
                SELECT count(*)
                FROM jobs r
                WHERE r.workspace_lane = place ->> 0 AND r.state = 'running'
            ) >= (place ->> 1)::bigint
    )
)
