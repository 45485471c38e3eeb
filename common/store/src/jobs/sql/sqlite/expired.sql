SELECT id
FROM jobs
WHERE state = 'running'
    AND lease_until < $1
    AND kind IN (SELECT value FROM json_each($3))
ORDER BY lease_until
LIMIT $2
