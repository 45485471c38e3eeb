UPDATE jobs
SET lease_until = $2
WHERE id IN (SELECT value FROM json_each($1))
    AND worker = $3
    AND state = 'running'
