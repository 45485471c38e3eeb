-- The dispatcher looks for each kind's own work: a kind whose bell is full, or that is paused, then costs the others nothing.
drop index jobs_due;
create index jobs_due on jobs (kind, run_at) where state = 'scheduled';
drop index jobs_ready;
create index jobs_ready on jobs (kind, dispatched_at) where state = 'ready' and not waiting;
-- In the very order in which a lane's jobs are woken: the first one is found without a look at the others.
drop index jobs_waiting;
create index jobs_waiting on jobs (lane, run_at, id) where state = 'ready' and waiting;
