-- The publish calls that were begun on an account whose platform has a daily cap; those of the last 24 hours count. Like a
-- target, a call has no foreign key to its account.
create table publish_calls (
    id         integer primary key autoincrement,
    account_id bigint not null,
    began_at   timestamptz not null
);
create index publish_calls_account on publish_calls (account_id, began_at);
