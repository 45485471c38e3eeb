-- Link-in-bio pages. version rises with each change, so that a replica can tell whether what it shows is still true; views
-- and clicks are added without it.
create table bio_pages (
    id         integer primary key autoincrement,
    brand_id   bigint not null references brands (id) on delete cascade,
    slug       text not null unique,
    title      text not null,
    bio        text,
    theme      text not null check (theme in ('light', 'dark', 'ocean', 'sunset', 'forest')),
    -- A picture of the media library.
    avatar_id  bigint references media (id) on delete set null,
    views      bigint not null default 0,
    version    bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
create index bio_pages_brand on bio_pages (brand_id, id);
create index bio_pages_avatar on bio_pages (avatar_id) where avatar_id is not null;

create table bio_links (
    id         integer primary key autoincrement,
    page_id    bigint not null references bio_pages (id) on delete cascade,
    position   integer not null,
    title      text not null,
    url        text not null,
    clicks     bigint not null default 0,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
create index bio_links_page on bio_links (page_id, position);
