-- An index of running jobs that have a lane serves only questions about lanes. While few jobs run, all indexes of running
-- jobs look the same to the planner; so each has a condition of its own, that only the questions it is for imply.
create index jobs_lane_running on jobs (lane) where state = 'running' and lane is not null;
drop index jobs_running;
