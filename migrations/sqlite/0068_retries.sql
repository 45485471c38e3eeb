-- Finds retries far in the future, which a clock that was ahead has written, beside the posts that users have scheduled.
create index jobs_retries on jobs (run_at) where state = 'scheduled' and last_error is not null;
