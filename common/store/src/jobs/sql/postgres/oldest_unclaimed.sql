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
FROM json_array_elements_text($1::json)
WHERE value NOT IN (SELECT kind FROM paused_kinds)
