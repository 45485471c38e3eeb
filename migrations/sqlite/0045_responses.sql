-- Stored responses are compressed with a dictionary, together with their `Location`. In a column of its own, so that a
-- process of an older version takes the request for one still in progress instead of returning what it cannot read.
alter table idempotency_keys add column response blob;
