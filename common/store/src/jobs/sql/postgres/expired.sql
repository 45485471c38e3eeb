SELECT id
FROM jobs
WHERE state = 'running'
    AND lease_until < $1
    AND coalesce(kind = ANY (ARRAY (SELECT json_array_elements_text($3::json))), FALSE)
ORDER BY lease_until
LIMIT (SELECT $2)
