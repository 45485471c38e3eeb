-- Sessions of people in the console. A session acts with a key of its own, whose hash no client can present as a key;
-- its time of last use is the key's.
create table sessions (
    api_key_id bigint not null primary key references api_keys (id) on delete cascade,
    user_agent text not null
);

-- Links that sign a user in, once.
create table sign_in_links (
    hash       blob not null primary key,
    user_id    bigint not null references users (id) on delete cascade,
    expires_at timestamptz not null
);
create index sign_in_links_user on sign_in_links (user_id);
create index sign_in_links_expiry on sign_in_links (expires_at);

-- What was asked for, for the list of an API key's writes. A process of an older version leaves them null.
alter table idempotency_keys add column method text;
alter table idempotency_keys add column path text;

-- The calendar: posts by the time for which they are planned. A publish changes none of its columns.
create index posts_planned on posts (brand_id, scheduled_at) where scheduled_at is not null and deleted_at is null;

-- A link of a link-in-bio page: its icon, and whether it stands out.
alter table bio_links add column icon text;
alter table bio_links add column is_primary boolean not null default false;
