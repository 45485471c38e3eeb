-- Goes up with each change of the secrets: what was found out with earlier ones says nothing about these.
alter table social_accounts add column credentials_version bigint not null default 1;

-- When Crier itself held back the jobs of an account's lane: a platform's rate limit, or more due at once than the lane takes.
-- A post that waits for that is not late.
create table lane_holds (
    lane       text not null,
    held_since timestamptz not null,
    held_until timestamptz not null,
    primary key (lane, held_since)
);
create index lane_holds_over on lane_holds (held_until);
