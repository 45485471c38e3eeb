-- Of an answer that is too large to be kept: the ids of the records that it showed, a JSON list; it is rendered again from
-- them. Its body is null then, so that a process of an older version takes the request for one still in progress.
alter table idempotency_keys add column records text;
