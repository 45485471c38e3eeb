-- The columns that each run changes come last, next to each other, in the order in which a claim and a settle change them:
-- Postgres logs the bytes from the first to the last one that differ. The table is copied, which took four seconds with a
-- million jobs.
--
-- Two indexes less are written with each run: ended jobs are deleted on a walk in the order of their ids, and a running job
-- is found by its lane in `jobs_lane_running`, so it has no entry in the list of a lane's jobs.
lock table jobs in access exclusive mode;

create table ordered_jobs (
    id             bigint generated always as identity primary key,
    subject_id     bigint not null,
    created_at     timestamptz not null,
    run_at         timestamptz not null,
    priority       integer not null default 0,
    max_attempts   integer not null,
    kind           text not null,
    lane           text,
    workspace_lane text,
    trace          text,
    crashes        integer not null default 0,
    dispatched_at  timestamptz not null,
    waiting        boolean not null default false,
    attempt        integer not null default 0,
    fence          bigint not null default 0,
    worker         text,
    lease_until    timestamptz,
    state          text not null check (state in ('scheduled', 'ready', 'running', 'done', 'dead', 'cancelled')),
    finished_at    timestamptz,
    last_error     text
) with (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05
);
insert into ordered_jobs (
    id, subject_id, created_at, run_at, priority, max_attempts, kind, lane, workspace_lane, trace, crashes,
    dispatched_at, waiting, attempt, fence, worker, lease_until, state, finished_at, last_error
)
overriding system value
select id, subject_id, created_at, run_at, priority, max_attempts, kind, lane, workspace_lane, trace, crashes,
    dispatched_at, waiting, attempt, fence, worker, lease_until, state, finished_at, last_error
from jobs
order by id;
select setval('ordered_jobs_id_seq', last_value, is_called) from jobs_id_seq;

drop table jobs;
alter table ordered_jobs rename to jobs;
alter sequence ordered_jobs_id_seq rename to jobs_id_seq;
alter table jobs rename constraint ordered_jobs_pkey to jobs_pkey;
alter table jobs rename constraint ordered_jobs_state_check to jobs_state_check;

create index jobs_dead on jobs (kind) where state = 'dead';
create index jobs_due on jobs (kind, run_at) where state = 'scheduled';
create index jobs_given_up on jobs (state, id) where state = 'dead' or state = 'cancelled';
create index jobs_lane on jobs ((lane || ''), id) where lane is not null and state <> 'running';
create index jobs_lane_running on jobs (lane) where state = 'running' and lane is not null;
create index jobs_lane_waiting on jobs (lane, run_at, id) where state = 'ready' and waiting and lane is not null;
create index jobs_leased on jobs (lease_until) where state = 'running' and lease_until is not null;
create index jobs_ready on jobs (kind, dispatched_at) where state = 'ready' and not waiting;
create index jobs_scheduled on jobs (kind, id) where state = 'scheduled';
create unique index jobs_subject on jobs (kind, subject_id) where state in ('scheduled', 'ready', 'running');
create index jobs_workspace_running on jobs (workspace_lane) where state = 'running' and workspace_lane is not null;
create index jobs_workspace_waiting on jobs (workspace_lane, lane)
    where state = 'ready' and waiting and workspace_lane is not null;
