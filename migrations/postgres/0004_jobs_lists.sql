-- What an operator looks for among many jobs, newest first (`crier jobs`). The first two cost the queue nothing: few jobs die
-- or are cancelled, and a scheduled job is written into its index once.
create index jobs_given_up on jobs (state, id) where state = 'dead' or state = 'cancelled';
create index jobs_scheduled on jobs (kind, id) where state = 'scheduled';
create index jobs_lane on jobs (lane, id) where lane is not null;
