-- As for running jobs (0039): not for questions about lanes.
create index jobs_leased on jobs (lease_until) where state = 'running' and lease_until is not null;
drop index jobs_lease;
