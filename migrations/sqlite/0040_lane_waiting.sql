-- As for running jobs (0039): not for questions about workspaces.
create index jobs_lane_waiting on jobs (lane, run_at, id) where state = 'ready' and waiting and lane is not null;
drop index jobs_waiting;
