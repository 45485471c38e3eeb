-- Expired responses are found on a walk through the table instead: each request wrote to this index.
drop index idempotency_keys_age;
