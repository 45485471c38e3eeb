SELECT id
FROM jobs
WHERE id = $1
    AND fence = $2
    AND worker = $3
    AND state = 'running'
