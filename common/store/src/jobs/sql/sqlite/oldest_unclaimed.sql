SELECT value,
    (
        SELECT dispatched_at
        FROM jobs
        WHERE kind = value
            AND state = 'ready'
            AND NOT waiting
        ORDER BY dispatched_at
        LIMIT 1
    )
FROM json_each($1)
WHERE value NOT IN (SELECT kind FROM paused_kinds)
