-- The newest figures of each published target, and when they are looked at again; null: never.
create table target_analytics (
    target_id    bigint primary key references post_targets (id) on delete cascade,
    post_id      bigint not null,
    brand_id     bigint not null references brands (id) on delete cascade,
    account_id   bigint not null,
    published_at timestamptz not null,
    next_at      timestamptz,
    collected_at timestamptz,
    -- The platform does not have it any more.
    is_gone      boolean not null default false,
    impressions  bigint,
    reach        bigint,
    likes        bigint,
    comments     bigint,
    shares       bigint,
    clicks       bigint
);
create index target_analytics_brand on target_analytics (brand_id, published_at);
create index target_analytics_due on target_analytics (account_id, next_at) where next_at is not null;

-- What a target's figures were each time that they were looked at.
create table target_figures (
    target_id   bigint not null references target_analytics (target_id) on delete cascade,
    at          timestamptz not null,
    impressions bigint,
    reach       bigint,
    likes       bigint,
    comments    bigint,
    shares      bigint,
    clicks      bigint,
    primary key (target_id, at)
);

-- The figures of accounts, one row a day.
create table account_figures (
    account_id bigint not null references social_accounts (id) on delete cascade,
    at         timestamptz not null,
    followers  bigint,
    following  bigint,
    posts      bigint,
    primary key (account_id, at)
);

-- Published targets up to this time have their row in target_analytics.
create table analytics_progress (
    id         integer primary key check (id = 1),
    seen_until timestamptz not null
);
insert into analytics_progress (id, seen_until) values (1, '1970-01-01T00:00:00+00:00');
create index post_targets_published on post_targets (published_at) where published_at is not null;

-- When the figures of the account, or of one of its posts, are due; null: as soon as possible.
alter table social_accounts add column figures_at timestamptz;
create index social_accounts_figures on social_accounts (figures_at nulls first);
