SELECT value,
    (
        SELECT run_at
        FROM jobs
        WHERE kind = value AND state = 'scheduled'
        ORDER BY run_at
        LIMIT 1
    )
FROM json_each($1)
