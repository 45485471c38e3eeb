-- Feeds that a brand reads, and what stands in them.
create table feeds (
    id              bigint generated always as identity primary key,
    brand_id        bigint not null references brands (id) on delete cascade,
    name            text not null,
    -- False: the name follows the feed's own title.
    named           boolean not null,
    url             text not null,
    type            text not null check (type in ('rss', 'atom', 'wordpress', 'json')),
    status          text not null check (status in ('pending', 'active', 'failing')),
    -- Rises with each change of the URL.
    version         bigint not null default 1,
    found_url       text,
    validator_url   text,
    etag            text,
    last_modified   text,
    failures        integer not null default 0,
    last_error      text,
    last_fetched_at timestamptz,
    next_fetch_at   timestamptz not null,
    articles_count  bigint not null default 0,
    created_at      timestamptz not null,
    updated_at      timestamptz not null
);
create index feeds_brand on feeds (brand_id, id);
create index feeds_due on feeds (next_fetch_at);

create table articles (
    id           bigint generated always as identity primary key,
    feed_id      bigint not null references feeds (id) on delete cascade,
    guid         text not null,
    title        text,
    url          text,
    summary      text,
    author       text,
    image_url    text,
    published_at timestamptz not null,
    -- Of all that was found, to tell whether it changed.
    digest       text not null,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    unique (feed_id, guid)
);
create index articles_newest on articles (feed_id, published_at, id);
