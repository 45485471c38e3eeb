-- Metrics that the platform refused for an account, and until when they are not asked for.
create table metrics_set_aside (
    account_id bigint not null references social_accounts (id) on delete cascade,
    name       text not null,
    until      timestamptz not null,
    primary key (account_id, name)
) without rowid;
