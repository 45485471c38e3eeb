-- Where a workspace is: its months begin when they begin there.
alter table workspaces add column timezone text not null default 'UTC';

-- The credits that a workspace has used or holds in a month of its own time zone. A new month has no row, and so all its
-- credits: nobody has to renew them.
create table ai_usage (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    month        text not null,
    used         bigint not null check (used >= 0),
    primary key (workspace_id, month)
);

-- Credits that were taken for a request that is still at work. The row is there before the provider is asked, and goes in the
-- transaction that stores the answer, or when the credits are given back.
create table ai_reservations (
    id           bigint generated always as identity primary key,
    workspace_id bigint not null references workspaces (id) on delete cascade,
    -- No reference: what was used stays told when the brand is gone.
    brand_id     bigint not null,
    month        text not null,
    operation    text not null check (operation in ('captions', 'hashtags', 'images')),
    credits      bigint not null check (credits > 0),
    -- After this the request is dead, and the scheduler gives its credits back.
    lease_until  timestamptz not null
);
create index ai_reservations_lease on ai_reservations (lease_until);

-- What was used in the end: `ai_usage.used` is the sum of these and of the reservations.
create table ai_brand_usage (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    month        text not null,
    brand_id     bigint not null,
    operation    text not null check (operation in ('captions', 'hashtags', 'images')),
    requests     bigint not null,
    credits      bigint not null,
    primary key (workspace_id, month, brand_id, operation)
);
