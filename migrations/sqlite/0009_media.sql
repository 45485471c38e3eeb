-- Bytes in the storage, kept once for a brand however many records show them. The row comes before the bytes and goes after
-- them: what is in the storage always has a row. reserved: being brought in; doomed: to be taken away.
create table files (
    id            integer primary key autoincrement,
    workspace_id  bigint not null,
    -- Null once the brand is gone.
    brand_id      bigint references brands (id) on delete set null,
    state         text not null check (state in ('reserved', 'stored', 'doomed')),
    -- The names in the storage and in the address: nobody guesses them.
    key           text not null unique,
    thumbnail_key text not null,
    sha256        bytea not null,
    mime_type     text not null,
    size_bytes    bigint not null,
    width         integer not null,
    height        integer not null,
    -- How many are bringing these bytes in, as far as it is reserved: who fails gives it up only where nobody else is left.
    takers        integer not null,
    -- When somebody last began to bring these bytes in.
    touched_at    timestamptz not null,
    created_at    timestamptz not null
);
create unique index files_bytes on files (brand_id, sha256) where state <> 'doomed';
create index files_reserved on files (touched_at) where state = 'reserved';
create index files_orphaned on files (id) where brand_id is null;
create index files_doomed on files (id) where state = 'doomed';

-- What the files of a workspace have together, reserved ones included.
create table storage_usage (
    workspace_id bigint primary key references workspaces (id) on delete cascade,
    bytes        bigint not null
);

-- The media library.
create table media (
    id         integer primary key autoincrement,
    brand_id   bigint not null references brands (id) on delete cascade,
    file_id    bigint not null references files (id),
    asset_type text not null check (asset_type in ('image', 'icon', 'logo')),
    filename   text not null,
    alt_text   text,
    source_url text,
    -- The file's name and the alt text in small letters: SQLite's `lower` knows ASCII alone.
    search     text not null,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
create index media_brand on media (brand_id, id);
create index media_file on media (file_id);

-- Imports from an address.
create table media_jobs (
    id         integer primary key autoincrement,
    brand_id   bigint not null references brands (id) on delete cascade,
    asset_type text not null check (asset_type in ('image', 'icon', 'logo')),
    source_url text not null,
    alt_text   text,
    status     text not null check (status in ('pending', 'processing', 'completed', 'failed')),
    media_id   bigint references media (id) on delete set null,
    error      jsonb,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
create index media_jobs_brand on media_jobs (brand_id);
create index media_jobs_media on media_jobs (media_id);

-- Which posts show which pictures, on whatever account.
create table post_media (
    post_id  bigint not null references posts (id) on delete cascade,
    media_id bigint not null references media (id) on delete cascade,
    primary key (post_id, media_id)
);
create index post_media_media on post_media (media_id);

-- What the platform called the pictures that it has already, by asset.
alter table post_targets add column uploads jsonb;

-- The pictures of a sandbox post: [{url, alt}].
alter table sandbox_posts add column media jsonb not null default '[]';
