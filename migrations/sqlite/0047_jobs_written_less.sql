-- Each index entry is a write. Ended jobs are deleted on a walk in the order of their ids, and a running job is found by its
-- lane in `jobs_lane_running`, so it has no entry in the list of a lane's jobs.
drop index jobs_ended;
drop index jobs_lane;
create index jobs_lane on jobs ((lane || ''), id) where lane is not null and state <> 'running';
