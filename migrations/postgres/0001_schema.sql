-- The schema of Crier on Postgres. The file for SQLite has the same tables, columns and index names.
--
-- A comment on an index names the functions that need it, by module and name, in `common/store/src`. `fk` stands for
-- a foreign key: deleting a parent looks up its children.
--
-- Times are UTC. Columns with a fixed list of words are enums in `common/domain`.
--
-- The tables that every request or job writes have no `check` on such columns: Postgres parses a check again for each
-- statement that writes to the table. The tests add these checks (`tests/support/databases.rs`), and SQLite has them.
--
-- These tables also have few foreign keys: an insert into a child locks the row of its parent, which writes a WAL
-- record and makes concurrent requests of one user, brand or webhook share the lock. Triggers delete the children
-- instead. A key is omitted only in these cases:
--
-- * The parent is deleted only after its users have lost access: workspaces and brands (`deletions`).
-- * The transaction that inserts the child also inserts the parent: events.
-- * The statement that inserts the child also updates the parent, or the parent is locked.
-- * A child that is inserted while its parent is deleted can remain, and does no harm. Members and authors are always
--   read together with their users. A response is deleted after a day. The job of a delivery without an endpoint
--   deletes the delivery.

-- Deletes the children of a deleted row. Arguments: the table of the children, and its column with the parent's ID.
create function delete_children() returns trigger language plpgsql as $$
begin
    execute format('delete from %I where %I = $1', tg_argv[0], tg_argv[1]) using old.id;
    return null;
end
$$;


-- # Workspaces, users and brands

-- Customers of the installation. Billing and limits apply to a workspace.
create table workspaces (
    id         bigint generated always as identity primary key,
    name       text not null,
    plan       text not null,
    created_at timestamptz not null,
    -- The time zone in which the months of AI credits begin.
    timezone   text not null default 'UTC'
);

-- People who sign in.
create table users (
    id           bigint generated always as identity primary key,
    workspace_id bigint not null references workspaces (id) on delete cascade,
    email        text not null unique,
    name         text not null,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    -- Whether the user administers the installation.
    is_operator  boolean not null default false,
    -- How often the user gets emails about problems: immediately, hourly, daily, never.
    notice_frequency text not null default 'hourly'
        check (notice_frequency in ('immediately', 'hourly', 'daily', 'never')),
    -- The time of the last of these emails.
    notices_mailed_at timestamptz
);
-- notices::due.
create index users_immediate_notices on users (id) where notice_frequency = 'immediately';
-- invitations::count_people; fk.
create index users_workspace on users (workspace_id);

-- Brands, which own posts, accounts, feeds, reports and everything else that members share.
create table brands (
    id           bigint generated always as identity primary key,
    workspace_id bigint not null,
    name         text not null,
    description  text,
    website      text,
    timezone     text not null,
    created_at   timestamptz not null,
    updated_at   timestamptz not null
);
-- brands::count, invitations::count_people; trigger delete_brands.
create index brands_workspace on brands (workspace_id);
create trigger delete_brands after delete on workspaces
    for each row execute function delete_children('brands', 'workspace_id');

-- The roles of users in brands.
create table brand_members (
    brand_id   bigint not null,
    user_id    bigint not null,
    role       text not null check (role in ('owner', 'admin', 'editor', 'contributor')),
    created_at timestamptz not null,
    primary key (brand_id, user_id)
);
-- brands::list, users::brand_without_other_owner, users::brands_without_other_member; trigger delete_brand_members.
create index brand_members_user on brand_members (user_id);
-- Members are always read together with their users, so a member whose user is gone is never returned.
create trigger delete_brand_members after delete on brands
    for each row execute function delete_children('brand_members', 'brand_id');
create trigger delete_brand_members after delete on users
    for each row execute function delete_children('brand_members', 'user_id');

-- Invitations to a brand. The link works once. A new invitation to the same email replaces the earlier one.
create table invitations (
    id         bigint generated always as identity primary key,
    brand_id   bigint not null references brands (id) on delete cascade,
    -- The user who sent the invitation.
    user_id    bigint not null references users (id) on delete cascade,
    role       text not null,
    expires_at timestamptz not null,
    email      text not null,
    -- The hash of the token in the link.
    hash       bytea not null unique
);
-- invitations::create (on conflict), invitations::list, invitations::count_people; fk.
create unique index invitations_email on invitations (brand_id, email);
-- fk.
create index invitations_user on invitations (user_id);
-- invitations::purge.
create index invitations_expiry on invitations (expires_at);


-- # Plan limits

-- Posts per month (UTC, `YYYY-MM`) of workspaces whose plan has a limit. All requests count in one row, so that two
-- of them cannot both take the last post.
create table usage (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    month        text not null,
    posts        bigint not null default 0,
    primary key (workspace_id, month)
);

-- Posts per month of workspaces whose plan has no limit. The count is spread over slots, so that concurrent requests
-- rarely wait for the same row. The total of a month is the sum of `usage` and `usage_slots`.
create table usage_slots (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    month        text not null,
    slot         bigint not null,
    posts        bigint not null,
    primary key (workspace_id, month, slot)
);

-- AI credits that a workspace used or reserved, per month of its time zone. A month without a row has all of its
-- credits.
create table ai_usage (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    month        text not null,
    used         bigint not null check (used >= 0),
    primary key (workspace_id, month)
);

-- AI credits reserved for a running request. The row is inserted before the call to the provider. It is deleted in
-- the transaction that stores the result, or when the credits are refunded.
create table ai_reservations (
    id           bigint generated always as identity primary key,
    workspace_id bigint not null references workspaces (id) on delete cascade,
    -- No foreign key: usage remains when the brand is deleted.
    brand_id     bigint not null,
    month        text not null,
    operation    text not null check (operation in ('captions', 'hashtags', 'images')),
    credits      bigint not null check (credits > 0),
    -- The time after which the scheduler refunds the credits, because the request has died.
    lease_until  timestamptz not null
);
-- ai_credits::refund_expired, misdated::correct_future_times.
create index ai_reservations_lease on ai_reservations (lease_until);

-- AI credits consumed, per brand and operation. The sum of these and of the reservations is `ai_usage.used`.
create table ai_brand_usage (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    month        text not null,
    brand_id     bigint not null,
    operation    text not null check (operation in ('captions', 'hashtags', 'images')),
    requests     bigint not null,
    credits      bigint not null,
    primary key (workspace_id, month, brand_id, operation)
);


-- # Keys and sessions

-- API keys. Only the hash of a key is stored. A console session and a connected application have keys of their own
-- (`sessions`, `oauth_grants`).
create table api_keys (
    id           bigint generated always as identity primary key,
    user_id      bigint not null references users (id) on delete cascade,
    mode         text not null check (mode in ('live', 'test')),
    scopes       text not null,
    hash         bytea not null unique,
    prefix       text not null,
    last4        text not null,
    last_used_at timestamptz,
    created_at   timestamptz not null,
    -- Whether the key can use all brands of its user, also future ones. Otherwise only those in `key_brands`.
    all_brands   boolean not null default true,
    -- The role that the key has at most, in every brand. Null: that of its user.
    role_limit   text check (role_limit in ('owner', 'admin', 'editor', 'contributor')),
    -- The name by which its user recognizes the key. Null: none.
    name         text
);
-- keys::count, keys::list, sessions::list, sessions::revoke_others, grants::list, grants::create, grants::revoke_all,
-- idempotency::list; fk.
create index api_keys_user on api_keys (user_id);

-- The brands that an API key can use, if it cannot use all brands of its user. The user must also be a member.
create table key_brands (
    api_key_id bigint not null references api_keys (id) on delete cascade,
    brand_id   bigint not null references brands (id) on delete cascade,
    -- keys::authenticate, brands::list_of_key, grants::list; fk.
    primary key (api_key_id, brand_id)
);
-- brands::remove_member; fk.
create index key_brands_brand on key_brands (brand_id);

-- Console sessions. No client can present the hash of a session's key as an API key. The session was last used when
-- its key was.
create table sessions (
    api_key_id bigint primary key references api_keys (id) on delete cascade,
    user_agent text not null,
    -- The IP address from which the user signed in.
    address    text not null
);

-- Links that sign a user in, once.
create table sign_in_links (
    -- The hash of the token in the link.
    hash       bytea primary key,
    user_id    bigint not null references users (id) on delete cascade,
    expires_at timestamptz not null
);
-- sessions::may_send_link; fk.
create index sign_in_links_user on sign_in_links (user_id);
-- sessions::purge.
create index sign_in_links_expiry on sign_in_links (expires_at);


-- # Connected applications (OAuth)

-- Applications that registered themselves (RFC 7591). Applications with a metadata document have no row. A registration
-- is deleted a day after it was made if no user allowed it, and otherwise 90 days after its last use.
create table oauth_clients (
    -- Random.
    id            text primary key,
    created_at    timestamptz not null,
    -- The last time at which the application got a token. Null if it never did.
    last_used_at  timestamptz,
    -- The network from which it was registered: an IPv4 address or an IPv6 /64.
    network       text not null,
    name          text not null,
    -- A JSON array of texts.
    redirect_uris text not null
);
-- clients::count_unused.
create index oauth_clients_network on oauth_clients (network) where last_used_at is null;
-- clients::purge, clients::drop_oldest_unused, clients::drop_oldest_without_grant.
create index oauth_clients_unused on oauth_clients (created_at) where last_used_at is null;
-- clients::purge, clients::drop_oldest_without_grant.
create index oauth_clients_used on oauth_clients (last_used_at) where last_used_at is not null;

-- The access that users granted to applications. The grant has an API key with its user, scopes and brands, and was
-- created and last used when its key was. The hash of its key is that of the text with which all its refresh tokens
-- begin, and no client can present it as an API key. Deleting the key ends the grant.
create table oauth_grants (
    api_key_id    bigint primary key references api_keys (id) on delete cascade,
    -- When the last refresh token expires.
    expires_at    timestamptz not null,
    -- The ID of a registration, or the URL of a metadata document.
    client_id     text not null,
    client_name   text not null,
    redirect_host text not null
);
-- clients::drop_oldest_without_grant.
create index oauth_grants_client on oauth_grants (client_id);
-- grants::purge.
create index oauth_grants_expiry on oauth_grants (expires_at);

-- Authorization codes. A used code stays for a day, so that a second use is detected; an unused one until it expires.
create table oauth_codes (
    hash           bytea primary key,
    user_id        bigint not null references users (id) on delete cascade,
    expires_at     timestamptz not null,
    -- The grant that the code created. Null if the code was not used.
    grant_id       bigint references oauth_grants (api_key_id) on delete cascade,
    client_id      text not null,
    client_name    text not null,
    redirect_uri   text not null,
    redirect_host  text not null,
    code_challenge text not null,
    scopes         text not null,
    -- The role that the grant has at most. Null: that of its user.
    role_limit     text,
    -- A JSON array of the IDs of the brands. Null for all brands, also future ones.
    brands         text
);
-- grants::revoke_all; fk.
create index oauth_codes_user on oauth_codes (user_id);
-- fk.
create index oauth_codes_grant on oauth_codes (grant_id);
-- codes::purge.
create index oauth_codes_expiry on oauth_codes (expires_at);

-- Access tokens of grants, and the newest refresh token of each grant.
create table oauth_tokens (
    hash        bytea primary key,
    grant_id    bigint not null references oauth_grants (api_key_id) on delete cascade,
    kind        text not null check (kind in ('access', 'refresh')),
    expires_at  timestamptz not null,
    -- The scopes of an access token that has fewer than its grant.
    scopes      text
);
-- tokens::drop_surplus; fk.
create index oauth_tokens_grant on oauth_tokens (grant_id, kind, expires_at);
-- tokens::purge.
create index oauth_tokens_expiry on oauth_tokens (expires_at);


-- # Accounts

-- Connected social accounts. Several brands of a workspace can share an account.
create table social_accounts (
    id                  bigint generated always as identity primary key,
    workspace_id        bigint not null references workspaces (id) on delete cascade,
    platform            text not null,
    external_id         text not null,
    name                text not null,
    username            text,
    profile_url         text,
    avatar_url          text,
    kind                text not null check (kind in ('profile', 'page', 'channel', 'site', 'store')),
    status              text not null check (status in ('active', 'expired')),
    -- Tokens or other credentials, encrypted.
    secrets             bytea not null,
    token_expires_at    timestamptz,
    -- The lease of the process that renews the tokens. A refresh token can be used only once.
    refreshing_until    timestamptz,
    last_error          jsonb,
    connected_at        timestamptz not null,
    created_at          timestamptz not null,
    updated_at          timestamptz not null,
    -- Incremented with each change of the secrets. A result that was obtained with older secrets is ignored.
    credentials_version bigint not null default 1,
    -- The client ID of the application that connected the account.
    application         text,
    -- Null if Crier does not renew the tokens: they do not expire, or a publish renews them.
    token_renewable     boolean,
    -- Whether a refresh token is replaced each time it is used.
    token_rotates       boolean not null default false,
    refresh_expires_at  timestamptz,
    -- The number of warnings sent before the access expires.
    warnings            integer not null default 0,
    -- The time at which to renew the tokens.
    token_renew_at      timestamptz,
    -- The time of the next renewal or warning, whichever is earlier.
    token_check_at      timestamptz,
    -- The time at which metrics of the account, or of one of its posts, are due. Null: as soon as possible.
    metrics_at          timestamptz,
    -- The limits that the account's own server states, and the account's boards. Null if none were read, or if the
    -- platform has neither.
    limits              jsonb,
    -- The requested permissions that the user granted. Null if they are unknown, as for accounts without a consent.
    granted_scopes      jsonb,
    unique (workspace_id, platform, external_id)
);
-- account_tokens::enqueue_due.
create index social_accounts_check on social_accounts (token_check_at) where token_check_at is not null;
-- account_tokens::of_application, account_holders::candidates.
create index social_accounts_application on social_accounts (platform, application) where application is not null;
-- analytics::enqueue_due. Accounts that were never read come first.
create index social_accounts_metrics on social_accounts (metrics_at nulls first);

-- Texts that members of a brand insert into posts.
create table snippets (
    id         bigint generated always as identity primary key,
    brand_id   bigint not null references brands (id) on delete cascade,
    name       text not null,
    kind       text not null check (kind in ('text', 'hashtags', 'signature')),
    created_at timestamptz not null,
    updated_at timestamptz not null,
    content    text not null
);
-- snippets::list, snippets::size; fk.
create index snippets_brand on snippets (brand_id);

-- The accounts of brands.
create table brand_accounts (
    brand_id     bigint not null references brands (id) on delete cascade,
    account_id   bigint not null references social_accounts (id) on delete cascade,
    created_at   timestamptz not null,
    -- The snippet that is appended to texts of the brand on this account.
    signature_id bigint references snippets (id) on delete set null,
    primary key (brand_id, account_id)
);
-- accounts::attachments, account_tokens::brands, account_tokens::access, conversations::receive::brands; fk.
create index brand_accounts_account on brand_accounts (account_id);
-- snippets::is_used; fk.
create index brand_accounts_signature on brand_accounts (signature_id) where signature_id is not null;

-- The avatars of accounts, as small images for the console.
create table account_avatars (
    account_id   bigint primary key references social_accounts (id) on delete cascade,
    -- The URL from which the avatar was last read, successfully or not.
    url          text not null,
    -- A JPEG image. Null if the avatar could never be read.
    image        bytea,
    -- The time at which to read the avatar again.
    next_read_at timestamptz not null
);

-- Applications registered at a platform: for a brand, for a workspace, or for the installation if both are null.
create table applications (
    id            bigint generated always as identity primary key,
    platform      text not null,
    target        text not null check (target in ('default', 'page')),
    workspace_id  bigint references workspaces (id) on delete cascade,
    brand_id      bigint references brands (id) on delete cascade,
    -- The server, on platforms that consist of many servers (Mastodon). Empty on other platforms.
    instance      text not null,
    redirect_uri  text not null,
    client_id     text not null,
    -- Encrypted.
    client_secret bytea not null,
    check (workspace_id is null or brand_id is null)
);
-- applications::set (on conflict), applications::of_brand, applications::at_instance.
create unique index applications_place
    on applications (platform, target, coalesce(workspace_id, 0), coalesce(brand_id, 0), instance);

-- URLs at which a person connects an account, once. Tokens, states and cookies are stored only as hashes.
create table authorizations (
    id           bigint generated always as identity primary key,
    token_hash   bytea not null unique,
    brand_id     bigint not null references brands (id) on delete cascade,
    platform     text not null,
    target       text not null check (target in ('default', 'page')),
    instance     text not null,
    stage        text not null check (stage in ('issued', 'at_platform', 'exchanging', 'choosing', 'used')),
    state_hash   bytea unique,
    browser_hash bytea,
    account_id   bigint,
    expires_at   timestamptz not null,
    -- The current attempt, encrypted: verifier, application, tokens, choices.
    data         bytea,
    -- The user who requested the URL. Null if the operator did.
    user_id      bigint,
    -- The API key with which the user requested it, which may no longer exist. Null if there is none.
    key_id       bigint
);
-- authorizations::purge.
create index authorizations_expiry on authorizations (expires_at);


-- # Media

-- Storage used by a workspace, in bytes.
create table storage_usage (
    workspace_id bigint primary key references workspaces (id) on delete cascade,
    -- Files, including reserved ones.
    bytes        bigint not null,
    -- Texts of posts, targets, messages, images and imports, counted by the triggers `count_…`. Other texts have
    -- limits of their own.
    texts        bigint not null default 0
);

-- Returns how many bytes a row adds to `storage_usage.texts`: its text and 512 bytes, rounded to a multiple of 4096.
-- Most rows then add nothing, and the writers of a workspace do not wait for each other. The ID of the row decides
-- whether it is rounded up or down, so that the sum is right on average and a deletion subtracts what the insertion
-- added. 2531 is 4096 divided by the golden ratio.
create function stored_bytes(id bigint, text_bytes bigint) returns bigint language sql immutable parallel safe as $$
    select (512 + text_bytes + id * 2531 % 4096) / 4096 * 4096
$$;

-- Adds bytes to `storage_usage.texts` of a brand's workspace.
create function count_texts(brand bigint, delta bigint) returns void language plpgsql as $$
begin
    if delta <> 0 then
        insert into storage_usage (workspace_id, bytes, texts)
        select workspace_id, 0, delta from brands where id = brand
        on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
    end if;
end
$$;

-- Files in the storage. Identical bytes of a brand are stored once. The row is inserted before the bytes are written
-- and deleted after they are removed, so that no file is without a row. States: reserved (being written), stored,
-- doomed (to delete).
create table files (
    id            bigint generated always as identity primary key,
    workspace_id  bigint not null,
    -- Null if the brand was deleted.
    brand_id      bigint references brands (id) on delete set null,
    state         text not null check (state in ('reserved', 'stored', 'doomed')),
    -- Names in the storage and in URLs, which cannot be guessed.
    key           text not null unique,
    -- Null for a video whose pictures cannot be read.
    thumbnail_key text,
    sha256        bytea not null,
    mime_type     text not null,
    size_bytes    bigint not null,
    width         integer not null,
    height        integer not null,
    -- What the headers of a video say. Null for other files.
    video         jsonb,
    -- The number of requests that write these bytes. The last one that fails deletes the file.
    takers        integer not null,
    -- The time at which a request last began to write these bytes.
    touched_at    timestamptz not null
);
-- files::reserve (on conflict); fk.
create unique index files_bytes on files (brand_id, sha256) where state <> 'doomed';
-- files::mark_abandoned_for_deletion, files::totals.
create index files_reserved on files (touched_at) where state = 'reserved';
-- files::mark_abandoned_for_deletion.
create index files_orphaned on files (id) where brand_id is null;
-- files::marked_for_deletion, files::totals.
create index files_doomed on files (id) where state = 'doomed';

-- The media library.
create table media (
    id         bigint generated always as identity primary key,
    brand_id   bigint not null references brands (id) on delete cascade,
    file_id    bigint not null references files (id),
    asset_type text not null check (asset_type in ('image', 'icon', 'logo', 'video')),
    filename   text not null,
    alt_text   text,
    source_url text,
    -- The file name and the alt text in lower case. `lower` of SQLite handles only ASCII.
    search     text not null,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
-- media::list, deletions::delete_some; fk.
create index media_brand on media (brand_id, id);
-- files::mark_unused_for_deletion; fk.
create index media_file on media (file_id);

-- The texts of an image count as stored text, because any number of images can have the same file. The file counts
-- the 512 bytes of the row. `search` repeats the file name and the alt text.

-- Returns the size of an image's texts, without the 512 bytes of a row.
create function image_text(filename text, alt_text text, source_url text, search text) returns bigint
language sql immutable parallel safe as $$
    select octet_length(filename) + coalesce(octet_length(alt_text), 0) + coalesce(octet_length(source_url), 0)
        + octet_length(search) - 512
$$;

-- Counts the change that an insert, update or delete makes. The other functions `count_…` do the same.
create function count_image() returns trigger language plpgsql as $$
declare
    before bigint := 0;
    after bigint := 0;
begin
    if tg_op <> 'INSERT' then
        before := stored_bytes(old.id, image_text(old.filename, old.alt_text, old.source_url, old.search));
    end if;
    if tg_op <> 'DELETE' then
        after := stored_bytes(new.id, image_text(new.filename, new.alt_text, new.source_url, new.search));
    end if;
    perform count_texts(coalesce(new.brand_id, old.brand_id), after - before);
    return null;
end
$$;
create trigger count_new_image after insert on media
    for each row when (stored_bytes(new.id, image_text(new.filename, new.alt_text, new.source_url, new.search)) > 0)
    execute function count_image();
create trigger count_changed_image after update of filename, alt_text, search on media
    for each row when (old.search is distinct from new.search) execute function count_image();
-- Deferred to the commit: a deletion locks the file after the image, and all other writers lock the count after the
-- file.
create constraint trigger count_removed_image after delete on media
    deferrable initially deferred
    for each row when (stored_bytes(old.id, image_text(old.filename, old.alt_text, old.source_url, old.search)) > 0)
    execute function count_image();

-- Resumable uploads of videos. States: open, done (an asset has the bytes), rejected (no asset can have the bytes), doomed
-- (it and its pieces must be deleted).
create table media_uploads (
    id           bigint generated always as identity primary key,
    workspace_id bigint not null,
    -- Null if the brand was deleted.
    brand_id     bigint references brands (id) on delete set null,
    state        text not null check (state in ('open', 'done', 'rejected', 'doomed')),
    -- The size of the whole file.
    size_bytes   bigint not null,
    -- How much of the workspace's storage is reserved: the size, or 0 if its file has taken that over.
    reserved     bigint not null,
    -- The number of bytes and of pieces that are stored.
    received     bigint not null,
    pieces       integer not null,
    -- The request that writes at the moment, and until when no other may. Null if there is none.
    writer       text,
    writer_until timestamptz,
    -- The file that has taken over the space. Null until all bytes are received and checked.
    file_id      bigint references files (id) on delete set null,
    media_id     bigint references media (id) on delete set null,
    created_at   timestamptz not null,
    expires_at   timestamptz not null,
    -- When it left the state open. Null if it is open, or if it is done or rejected and its pieces are deleted.
    ended_at     timestamptz,
    asset_type   text not null check (asset_type in ('video')),
    -- Empty if the client sent none.
    filename     text not null,
    alt_text     text,
    -- The header Upload-Metadata, as the client sent it.
    metadata     text not null,
    -- The code and the text of the error for the client. Null unless it is rejected.
    error_code   text check (error_code in ('unsupported_media_type', 'payload_too_large')),
    error        text
);
-- fk.
create index media_uploads_brand on media_uploads (brand_id);
-- media_uploads::create, totals.
create index media_uploads_open on media_uploads (workspace_id) where state = 'open';
-- media_uploads::acquire_received.
create index media_uploads_received on media_uploads (id) where state = 'open' and received = size_bytes;
-- media_uploads::mark_expired; misdated::correct_future_times.
create index media_uploads_expiry on media_uploads (expires_at) where state <> 'doomed';
-- media_uploads::mark_expired.
create index media_uploads_orphaned on media_uploads (id) where brand_id is null;
-- media_uploads::ended.
create index media_uploads_ended on media_uploads (id) where ended_at is not null;
-- misdated::correct_future_times.
create index media_uploads_writing on media_uploads (writer_until) where writer_until is not null;
-- fk.
create index media_uploads_media on media_uploads (media_id);
-- files::mark_abandoned_for_deletion; fk.
create index media_uploads_file on media_uploads (file_id);

-- The received bytes of resumable uploads: an object in the storage for each piece. A piece has a row before its bytes
-- are written, so that the sweep finds the objects of a process that died.
create table media_upload_pieces (
    id        bigint generated always as identity primary key,
    upload_id bigint not null references media_uploads (id) on delete cascade,
    -- The name of the object.
    key       text not null,
    -- The position in the file, from 0. Null until the object is written.
    number    integer
);
-- media_uploads::piece_keys, pieces; fk.
create unique index media_upload_pieces_upload on media_upload_pieces (upload_id, number);

-- Imports of images from a URL. Finished imports are listed for a month.
create table media_jobs (
    id         bigint generated always as identity primary key,
    brand_id   bigint not null references brands (id) on delete cascade,
    asset_type text not null check (asset_type in ('image', 'icon', 'logo', 'video')),
    source_url text not null,
    alt_text   text,
    status     text not null check (status in ('pending', 'processing', 'completed', 'failed')),
    media_id   bigint references media (id) on delete set null,
    error      jsonb,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
-- media_jobs::newest, deletions::delete_some; fk.
create index media_jobs_brand on media_jobs (brand_id);
-- fk.
create index media_jobs_media on media_jobs (media_id);
-- media_jobs::purge.
create index media_jobs_ended on media_jobs (updated_at) where status in ('completed', 'failed');

-- The texts of an import count as stored text.
create function count_import() returns trigger language plpgsql as $$
declare
    before bigint := 0;
    after bigint := 0;
begin
    if tg_op = 'DELETE' then
        before := stored_bytes(old.id, octet_length(old.source_url) + coalesce(octet_length(old.alt_text), 0));
    else
        after := stored_bytes(new.id, octet_length(new.source_url) + coalesce(octet_length(new.alt_text), 0));
    end if;
    perform count_texts(coalesce(new.brand_id, old.brand_id), after - before);
    return null;
end
$$;
create trigger count_new_import after insert on media_jobs
    for each row when (
        stored_bytes(new.id, octet_length(new.source_url) + coalesce(octet_length(new.alt_text), 0)) > 0
    )
    execute function count_import();
create trigger count_removed_import after delete on media_jobs
    for each row when (
        stored_bytes(old.id, octet_length(old.source_url) + coalesce(octet_length(old.alt_text), 0)) > 0
    )
    execute function count_import();


-- # Posts and targets

-- Posts. `deleted_at` hides a post from clients; its row remains until no target has a job. The columns that a
-- publish changes come last, in the order in which it changes them: Postgres logs the bytes from the first changed
-- one to the last.
create table posts (
    id            bigint generated always as identity primary key,
    brand_id      bigint not null,
    author_id     bigint,
    created_at    timestamptz not null,
    scheduled_at  timestamptz,
    schedule_type text not null,
    -- Whether the post takes its time from the brand's queue.
    queued        boolean not null default false,
    -- The rule of which the post is an occurrence.
    recurring_id  bigint,
    -- The client's own name of an imported post.
    external_ref  text,
    media         jsonb not null,
    labels        jsonb not null default '[]',
    -- The parts that follow the post in its thread.
    thread        jsonb not null default '[]',
    first_comment jsonb,
    content       text not null,
    reject_reason text,
    -- Whether the post counts against the monthly limit. A post counts once, when it first leaves draft.
    counted       boolean not null,
    deleted_at    timestamptz,
    status        text not null,
    published_at  timestamptz,
    updated_at    timestamptz not null,
    -- The time by which a search filters.
    listed_at     timestamptz not null
        generated always as (coalesce(scheduled_at, published_at, created_at)) stored
);
-- posts::search, nearby_posts::find, deletions::delete_some; trigger delete_posts.
create index posts_brand on posts (brand_id, id, listed_at) where deleted_at is null;
-- posts::search with a status, sandbox::failed.
create index posts_brand_status on posts (brand_id, status, id, listed_at) where deleted_at is null;
-- posts::purge, deletions::delete_some.
create index posts_deleted on posts (deleted_at) where deleted_at is not null;
-- posts::search in the order of `scheduled_at`. Contains every column of a filter, so that a
-- search reads only the index. nearby_posts::find.
create index posts_planned on posts (brand_id, scheduled_at, id, status, listed_at) where deleted_at is null;
-- posts::search in the order of `published_at`, likewise.
create index posts_published on posts (brand_id, published_at desc nulls last, id desc, status, listed_at)
    where deleted_at is null;
-- calendar::between.
create index posts_listed on posts (brand_id, listed_at, id) where deleted_at is null;
-- calendar::upcoming.
create index posts_scheduled on posts (brand_id, scheduled_at, id) where status = 'scheduled' and deleted_at is null;
-- posts::with_external_refs, and two imports that run together.
create unique index posts_external_ref on posts (brand_id, external_ref)
    where external_ref is not null and deleted_at is null;
create trigger delete_posts after delete on brands
    for each row execute function delete_children('posts', 'brand_id');

-- Keeps the posts of a deleted user, without an author.
create function clear_author() returns trigger language plpgsql as $$
begin
    update posts set author_id = null where author_id = old.id;
    return null;
end
$$;
create trigger clear_author after delete on users for each row execute function clear_author();

-- The labels of the posts that are not deleted. The triggers copy them from the column `labels`. Labels are compared by
-- bytes, as on SQLite. posts::labels, posts::search; trigger delete_post_labels.
create table post_labels (
    brand_id bigint not null,
    label    text collate "C" not null,
    post_id  bigint not null,
    primary key (brand_id, label, post_id)
);
create trigger delete_post_labels after delete on brands
    for each row execute function delete_children('post_labels', 'brand_id');

-- The distinct words of the texts of posts, as `common/domain/src/words.rs` splits them. A search reads a range of the
-- primary key. Words are compared by bytes, as on SQLite. Trigger delete_post_words.
create table post_words (
    brand_id bigint not null,
    word     text collate "C" not null,
    post_id  bigint not null,
    primary key (brand_id, word, post_id)
);
create trigger delete_post_words after delete on brands
    for each row execute function delete_children('post_words', 'brand_id');

create function copy_labels() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        delete from post_labels
        where brand_id = old.brand_id
            and label in (select jsonb_array_elements_text(old.labels))
            and post_id = old.id;
    end if;
    insert into post_labels (brand_id, label, post_id)
    select new.brand_id, value, new.id
    from jsonb_array_elements_text(new.labels)
    where new.deleted_at is null;
    return null;
end
$$;
create trigger copy_new_labels after insert on posts
    for each row when (new.labels <> '[]') execute function copy_labels();
create trigger copy_changed_labels after update of labels, deleted_at on posts
    for each row when (
        old.labels <> new.labels or old.labels <> '[]' and old.deleted_at is distinct from new.deleted_at
    )
    execute function copy_labels();

-- The queues of brands, and their slots: `[{weekday, time, account_ids}]`, in the time zone of the brand. Whoever gives
-- a post a slot locks this row first, so that two posts never choose the same one. A brand without a row has no slots.
create table queues (
    brand_id   bigint primary key references brands (id) on delete cascade,
    -- The time of the last change of the slots. Null: never.
    updated_at timestamptz,
    slots      jsonb not null
);

-- The times that queued posts have taken, one row for each account of the post. The key is the last barrier against two
-- posts in one slot. When a worker begins a post, its rows remain until queues::purge_places. queues::places,
-- queues::waiting_places.
create table queue_places (
    brand_id   bigint not null,
    account_id bigint not null,
    at         timestamptz not null,
    post_id    bigint not null references posts (id) on delete cascade,
    primary key (brand_id, account_id, at)
);
-- queues::leave, queues::move_posts; fk.
create index queue_places_post on queue_places (post_id);

-- The publications of a post, one per account. `account_id` has no foreign key: a target remains when its account is
-- disconnected. As in `posts`, the columns that a publish changes come last. The start of a publish changes no
-- indexed column: with free space on the page (`fillfactor`), it updates no index.
create table post_targets (
    id              bigint generated always as identity primary key,
    post_id         bigint not null,
    account_id      bigint not null,
    created_at      timestamptz not null,
    position        integer not null,
    platform        text not null,
    -- The text, the media, the thread and the first comment for this account. Null uses those of the post.
    content         text,
    media           jsonb,
    thread          jsonb,
    first_comment   jsonb,
    options         jsonb not null,
    -- The signature that is appended to the text. Stored with the text, so that what was checked is published.
    signature       text,
    -- What the platform calls the images that it already has, by asset.
    uploads         jsonb,
    -- The progress of the upload of each video, by asset. Encrypted, because it contains URLs that accept bytes.
    video_uploads   text,
    -- Data by which a retry recognizes a call whose result is unknown.
    marker          jsonb,
    -- The parts of a thread that are on the platform. Empty if the post is not a thread.
    published_parts jsonb not null default '[]',
    error           jsonb,
    url             text,
    external_id     text,
    attempts        integer not null default 0,
    status          text not null,
    -- The start of the call whose result is unknown. Null if there is none.
    call_started_at timestamptz,
    next_attempt_at timestamptz,
    published_at    timestamptz,
    updated_at      timestamptz not null,
    -- All reads of a post's targets.
    unique (post_id, account_id)
) with (fillfactor = 70);
-- conversations::receive::post_of, adoptions::is_taken.
create index post_targets_external on post_targets (account_id, external_id) where external_id is not null;
-- analytics::add_published.
create index post_targets_published on post_targets (published_at) where published_at is not null;
-- posts::search with an account.
create index post_targets_account on post_targets (account_id, post_id);
create trigger delete_post_targets after delete on posts
    for each row execute function delete_children('post_targets', 'post_id');

-- The texts of posts and targets count as stored text. Those of a deleted post do not count, although the rows remain
-- for some time.

-- Returns the size of a target's own texts. A target without a text of its own has the text of the post.
create function target_text(content text, signature text, options jsonb, thread jsonb, first_comment jsonb)
returns bigint
language sql stable parallel safe as $$
    select coalesce(octet_length(content), 0) + coalesce(octet_length(signature), 0) + octet_length(options::text)
        + coalesce(octet_length(thread::text), 0) + coalesce(octet_length(first_comment::text), 0)
$$;

-- Returns the size of a post's texts.
create function post_text(content text, thread jsonb, first_comment jsonb) returns bigint
language sql stable parallel safe as $$
    select octet_length(content) + octet_length(thread::text) + coalesce(octet_length(first_comment::text), 0)
$$;

-- Also counts the targets of a post that is deleted.
create function count_post() returns trigger language plpgsql as $$
declare
    targets bigint := 0;
    before bigint := 0;
    after bigint := 0;
begin
    if tg_op <> 'INSERT' and old.deleted_at is null then
        before := stored_bytes(old.id, post_text(old.content, old.thread, old.first_comment));
        if tg_op = 'DELETE' or new.deleted_at is not null then
            select coalesce(sum(stored_bytes(t.id, target_text(t.content, t.signature, t.options, t.thread, t.first_comment))), 0) into targets
            from post_targets t
            where t.post_id = old.id;
        end if;
    end if;
    if tg_op <> 'DELETE' and new.deleted_at is null then
        after := stored_bytes(new.id, post_text(new.content, new.thread, new.first_comment));
    end if;
    perform count_texts(coalesce(new.brand_id, old.brand_id), after - before - targets);
    if tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end
$$;
create trigger count_new_post after insert on posts
    for each row when (stored_bytes(new.id, post_text(new.content, new.thread, new.first_comment)) > 0) execute function count_post();
create trigger count_changed_post after update of content, thread, first_comment, deleted_at on posts
    for each row when (
        octet_length(old.content) <> octet_length(new.content) or old.thread <> new.thread
        or old.first_comment is distinct from new.first_comment or old.deleted_at is distinct from new.deleted_at
    )
    execute function count_post();
-- Before the deletion, while the targets still exist.
create trigger count_removed_post before delete on posts
    for each row when (old.deleted_at is null) execute function count_post();

-- Counts nothing if the post is deleted.
create function count_target() returns trigger language plpgsql as $$
declare
    brand bigint;
    before bigint := 0;
    after bigint := 0;
begin
    if tg_op <> 'INSERT' then
        before := stored_bytes(old.id, target_text(old.content, old.signature, old.options, old.thread, old.first_comment));
    end if;
    if tg_op <> 'DELETE' then
        after := stored_bytes(new.id, target_text(new.content, new.signature, new.options, new.thread, new.first_comment));
    end if;
    if before <> after then
        select brand_id into brand
        from posts
        where id = coalesce(new.post_id, old.post_id) and deleted_at is null;
        perform count_texts(brand, after - before);
    end if;
    return null;
end
$$;
create trigger count_new_target after insert on post_targets
    for each row when (stored_bytes(new.id, target_text(new.content, new.signature, new.options, new.thread, new.first_comment)) > 0)
    execute function count_target();
create trigger count_changed_target after update of content, signature, options, thread, first_comment on post_targets
    for each row when (
        old.content is distinct from new.content or old.signature is distinct from new.signature
        or old.options is distinct from new.options or old.thread is distinct from new.thread
        or old.first_comment is distinct from new.first_comment
    )
    execute function count_target();
create trigger count_removed_target after delete on post_targets
    for each row when (stored_bytes(old.id, target_text(old.content, old.signature, old.options, old.thread, old.first_comment)) > 0)
    execute function count_target();

-- Attempts to publish a target.
create table target_attempts (
    id          bigint generated always as identity,
    target_id   bigint not null,
    number      integer not null,
    started_at  timestamptz not null,
    duration_ms bigint not null,
    outcome     text not null,
    status_code integer,
    error       jsonb,
    created_at  timestamptz not null,
    updated_at  timestamptz not null,
    -- Attempts are read only by target, so this is the only index. targets::ending::attempts,
    -- targets::ending::attempt_summaries; trigger delete_target_attempts.
    constraint target_attempts_target primary key (target_id, id)
);
create trigger delete_target_attempts after delete on post_targets
    for each row execute function delete_children('target_attempts', 'target_id');

-- The first comments of published targets.
create table first_comments (
    target_id       bigint primary key,
    created_at      timestamptz not null,
    content         text not null,
    marker          jsonb,
    error           jsonb,
    url             text,
    external_id     text,
    attempts        integer not null default 0,
    status          text not null,
    -- The start of the call whose result is unknown. Null if there is none.
    call_started_at timestamptz,
    next_attempt_at timestamptz,
    published_at    timestamptz,
    updated_at      timestamptz not null
);
-- adoptions::is_taken.
create index first_comments_external on first_comments (external_id) where external_id is not null;
create trigger delete_first_comments after delete on post_targets
    for each row execute function delete_children('first_comments', 'target_id');

-- The images that posts show, on any account.
create table post_media (
    post_id  bigint not null references posts (id) on delete cascade,
    media_id bigint not null references media (id) on delete cascade,
    primary key (post_id, media_id)
);
-- post_media::in_use; fk.
create index post_media_media on post_media (media_id);

-- Publish calls on accounts whose platform has a daily limit. Those of the last 24 hours count. If accounts share the
-- limit, the beginnings of their uploads, with its name: those of the current day count, also of deleted accounts. Those
-- of the last week show which workspaces upload. Like a target, a call has no foreign key to its account.
create table publish_calls (
    id           bigint generated always as identity primary key,
    account_id   bigint not null,
    began_at     timestamptz not null,
    quota        text,
    -- Only of uploads.
    workspace_id bigint
);
-- calls::begin, calls::full_until, accounts::disconnect.
create index publish_calls_account on publish_calls (account_id, began_at);
-- calls::begin_upload.
create index publish_calls_quota on publish_calls (quota, began_at) where quota is not null;

-- Imports of posts from files. A brand keeps the newest ones, for 30 days.
create table post_imports (
    id            bigint generated always as identity primary key,
    brand_id      bigint not null references brands (id) on delete cascade,
    -- The author of the posts. Null if the user was deleted.
    user_id       bigint references users (id) on delete set null,
    status        text not null check (status in ('pending', 'running', 'completed', 'failed')),
    -- Whether the rows are only checked.
    dry_run       boolean not null,
    filename      text,
    timezone      text not null,
    date_format   text not null,
    -- The accounts of rows that name none.
    accounts      jsonb not null,
    rows_done     integer not null default 0,
    rows_total    integer not null default 0,
    rows_valid    integer not null default 0,
    -- The valid rows whose posts take slots of the queue.
    rows_queued   integer not null default 0,
    rows_imported integer not null default 0,
    rows_skipped  integer not null default 0,
    -- Since when the import waits for the files of its posts.
    waiting_since timestamptz,
    created_at    timestamptz not null,
    updated_at    timestamptz not null,
    error         text
);
-- post_imports::list, post_imports::has_unfinished, post_imports::insert; fk.
create index post_imports_brand on post_imports (brand_id, id);
-- fk.
create index post_imports_user on post_imports (user_id);
-- post_imports::purge.
create index post_imports_ended on post_imports (updated_at) where status in ('completed', 'failed');

-- The files of imports that have not ended, and of the newest dry run of a brand.
create table post_import_files (
    import_id bigint primary key references post_imports (id) on delete cascade,
    bytes     bytea not null
);

-- The first problems of an import. `number` counts them.
create table post_import_errors (
    import_id   bigint not null references post_imports (id) on delete cascade,
    number      integer not null,
    row_number  integer not null,
    column_name text not null,
    message     text not null,
    primary key (import_id, number)
);

-- The imports into the media library for the posts of an import. A URL is imported once.
create table post_import_media (
    import_id    bigint not null references post_imports (id) on delete cascade,
    url          text not null,
    media_job_id bigint references media_jobs (id) on delete set null,
    primary key (import_id, url)
);
-- fk.
create index post_import_media_job on post_import_media (media_job_id);


-- # Content plans

-- Content plans: ideas for posts.
create table content_plans (
    id          bigint generated always as identity primary key,
    brand_id    bigint not null references brands (id) on delete cascade,
    name        text not null,
    description text,
    starts_on   date,
    ends_on     date,
    created_at  timestamptz not null,
    updated_at  timestamptz not null
);
-- content_plans::list, content_plans::count, content_plans::items_of_brand; fk.
create index content_plans_brand on content_plans (brand_id, id);

-- The items of content plans.
create table content_plan_items (
    id         bigint generated always as identity primary key,
    plan_id    bigint not null references content_plans (id) on delete cascade,
    title      text not null,
    content    text,
    planned_at timestamptz,
    -- The post most recently created from the item. A deleted post does not count, even if its row remains.
    post_id    bigint references posts (id) on delete set null,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
-- content_plans::items, content_plans::items_of_brand, content_plans::size; fk.
create index content_plan_items_plan on content_plan_items (plan_id);
-- fk: posts::purge.
create index content_plan_items_post on content_plan_items (post_id) where post_id is not null;


-- # Recurring posts

-- Rules that make posts at regular times, in the brand's time zone.
create table recurring_posts (
    id              bigint generated always as identity primary key,
    brand_id        bigint not null references brands (id) on delete cascade,
    -- The user who created or last changed the rule. Occurrences are made in the user's name.
    author_id       bigint references users (id) on delete set null,
    name            text not null,
    frequency       text not null check (frequency in ('daily', 'weekly', 'monthly', 'cron')),
    -- [1, 4], from 1 (Monday) to 7. Empty unless `weekly`.
    weekdays        jsonb not null,
    -- From 1 to 31. Null unless `monthly`.
    day             bigint,
    cron            text,
    -- HH:MM. Null for `cron`.
    time            text,
    starts_on       date not null,
    ends_on         date,
    -- The maximum number of occurrences.
    count           bigint,
    destination     text not null check (destination in ('calendar', 'draft', 'approval')),
    is_active       boolean not null,
    accounts        jsonb not null,
    labels          jsonb not null,
    -- The number of occurrences that were planned, except those that a change of the rule removed.
    planned         bigint not null default 0,
    -- Incremented with each change of the rule or of the brand's time zone.
    version         bigint not null default 1,
    -- The version for which the occurrences were last planned.
    planned_version bigint not null default 0,
    -- The time at which the rule needs a run. Null if it has no more occurrences.
    due_at          timestamptz,
    -- Why the last run could not make an occurrence.
    problem         text,
    -- The rule is deleted when a run has deleted its occurrences.
    deleted_at      timestamptz,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    -- [{content, media}]
    variations      jsonb not null,
    -- [{account_id, content, media, options, thread, first_comment}]
    overrides       jsonb not null
);
-- recurring_posts::list, recurring_posts::size, recurring_posts::replan; fk.
create index recurring_posts_brand on recurring_posts (brand_id, id);
-- fk.
create index recurring_posts_author on recurring_posts (author_id) where author_id is not null;
-- recurring_posts::enqueue_due, misdated::correct_future_times.
create index recurring_posts_due on recurring_posts (due_at) where due_at is not null;

-- The occurrences of rules. The row remains if a user deletes the post, so that it is not made again. `post_id` has no
-- foreign key: the rows of deleted posts are deleted later.
create table recurring_occurrences (
    id           bigint generated always as identity primary key,
    recurring_id bigint not null references recurring_posts (id) on delete cascade,
    -- The local day or, for `cron`, the local day and time.
    slot         text not null,
    occurs_at    timestamptz not null,
    -- The place among the occurrences of the rule, from 0 on, which determines the variation.
    number       bigint not null,
    -- The version of the rule from which the post was made.
    version      bigint not null,
    -- Whether a run deletes the occurrence with its post.
    is_removed   boolean not null default false,
    -- The time at which a run last wrote the post. Null if it was not made yet.
    written_at   timestamptz,
    post_id      bigint,
    -- Makes each occurrence once.
    unique (recurring_id, slot)
);
-- recurring_occurrences::since, recurring_occurrences::next_unfinished.
create index recurring_occurrences_times on recurring_occurrences (recurring_id, occurs_at, id);
-- recurring_occurrences::purge.
create index recurring_occurrences_old on recurring_occurrences (occurs_at);


-- # Feeds

-- Feeds that a brand reads.
create table feeds (
    id              bigint generated always as identity primary key,
    brand_id        bigint not null references brands (id) on delete cascade,
    name            text not null,
    -- Whether the user chose the name. Otherwise it follows the title of the feed.
    named           boolean not null,
    url             text not null,
    type            text not null check (type in ('rss', 'atom', 'wordpress', 'json')),
    status          text not null check (status in ('pending', 'active', 'failing')),
    -- Incremented with each change of the URL.
    version         bigint not null default 1,
    -- The URL of the feed, if `url` is a page that names it.
    found_url       text,
    -- The URL to which `etag` and `last_modified` belong.
    validator_url   text,
    etag            text,
    last_modified   text,
    failures        integer not null default 0,
    last_error      text,
    last_fetched_at timestamptz,
    next_fetch_at   timestamptz not null,
    articles_count  bigint not null default 0,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    -- The member in whose name the feed publishes: who last saved its settings. They may have left the brand.
    auto_post_user_id    bigint,
    -- The time since which new articles are posted. Null until the feed is read for the first time after it began to
    -- publish, or after its URL has changed.
    auto_post_since      timestamptz,
    auto_post_problem_at timestamptz,
    -- Why the last articles were not posted.
    auto_post_problem    text,
    -- The settings by which the feed publishes.
    auto_post            jsonb
);
-- feeds::list, feeds::count; fk.
create index feeds_brand on feeds (brand_id, id);
-- feeds::enqueue_due, misdated::correct_future_times.
create index feeds_due on feeds (next_fetch_at);

-- Articles of feeds.
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
    -- A hash of the article's fields, which tells whether it has changed.
    digest       text not null,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    unique (feed_id, guid)
);
-- articles::list.
create index articles_newest on articles (feed_id, published_at, id);

-- The articles of feeds that publish, and what became of them. The unique keys make sure that an article is posted at
-- most once, also if its feed changes the guid, or moves to another host.
create table feed_posts (
    id         bigint generated always as identity primary key,
    feed_id    bigint not null references feeds (id) on delete cascade,
    status     text not null check (status in ('known', 'waiting', 'posted', 'skipped')),
    -- The post that was created. A deleted post does not count, even if its row remains.
    post_id    bigint references posts (id) on delete set null,
    created_at timestamptz not null,
    guid       text not null,
    -- Hashes of the link, and of the path and the title (`ArticleKeys`).
    link_key   text,
    page_key   text,
    -- Why the article was not posted.
    reason     text,
    -- The title and the URL of the article when it appeared. Null if it was known.
    title      text,
    url        text
);
-- feed_posts::remember (on conflict).
create unique index feed_posts_guid on feed_posts (feed_id, guid);
-- feed_posts::remember (on conflict).
create unique index feed_posts_link on feed_posts (feed_id, link_key);
-- feed_posts::remember (on conflict).
create unique index feed_posts_page on feed_posts (feed_id, page_key);
-- feed_posts::list, feed_posts::count_since, feed_posts::has_skipped_since, feed_posts::forget_oldest,
-- feed_posts::skip_waiting; fk.
create index feed_posts_newest on feed_posts (feed_id, id, status, created_at);
-- fk: posts::purge.
create index feed_posts_post on feed_posts (post_id) where post_id is not null;


-- # Inbox

-- Conversations. An account in several brands has a conversation in each of them, with its own status, assignee, tags
-- and unread count. `account_id` has no foreign key: a conversation remains when its account is disconnected.
create table conversations (
    id                      bigint generated always as identity primary key,
    brand_id                bigint not null references brands (id) on delete cascade,
    account_id              bigint not null,
    platform                text not null,
    type                    text not null check (type in ('dm', 'comment', 'mention')),
    status                  text not null check (status in ('open', 'assigned', 'snoozed', 'resolved', 'spam')),
    unread_count            integer not null,
    assignee_id             bigint references users (id) on delete set null,
    snoozed_until           timestamptz,
    last_message_at         timestamptz not null,
    last_inbound_at         timestamptz,
    post_id                 bigint,
    created_at              timestamptz not null,
    updated_at              timestamptz not null,
    -- The platform's ID of the thread.
    thread_id               text not null,
    participant_external_id text,
    participant_name        text,
    participant_username    text,
    participant_avatar_url  text,
    subject_external_id     text,
    subject_url             text,
    last_message_preview    text not null,
    -- The data that the connector needs for a reply to the newest message.
    reply_context           jsonb not null
);
-- conversations::receive::conversation (on conflict).
create unique index conversations_thread on conversations (brand_id, account_id, type, thread_id);
-- conversations::list (search::ids, search::total). Contains every column of a filter, so that lists and counts
-- read only the index; fk.
create index conversations_list on conversations
    (brand_id, last_message_at, id, status, type, platform, account_id, assignee_id, unread_count);
-- conversations::end_snoozes.
create index conversations_snoozed on conversations (snoozed_until) where snoozed_until is not null;
-- brands::remove_member; fk.
create index conversations_assignee on conversations (assignee_id) where assignee_id is not null;
-- conversations::count_unread, for every page of the console.
create index conversations_unread on conversations (brand_id) where unread_count > 0 and status <> 'spam';

-- The tags of conversations.
create table conversation_tags (
    brand_id        bigint not null references brands (id) on delete cascade,
    tag             text not null,
    conversation_id bigint not null references conversations (id) on delete cascade,
    primary key (brand_id, tag, conversation_id)
);
-- conversations::tags, conversations::set_tags; fk.
create index conversation_tags_conversation on conversation_tags (conversation_id, tag);

-- The distinct words of a conversation's participant and messages, as `common/domain/src/words.rs` splits them. A
-- search reads a range of the primary key. Words are compared by bytes, as on SQLite.
create table conversation_words (
    brand_id        bigint not null references brands (id) on delete cascade,
    word            text collate "C" not null,
    conversation_id bigint not null,
    primary key (brand_id, word, conversation_id)
);

-- Messages. Those of the platform have the status `received`; replies have the other ones.
create table messages (
    id              bigint generated always as identity primary key,
    conversation_id bigint not null references conversations (id) on delete cascade,
    brand_id        bigint not null,
    account_id      bigint not null,
    direction       text not null check (direction in ('inbound', 'outbound')),
    status          text not null check (status in ('received', 'pending', 'sent', 'failed')),
    sent_at         timestamptz not null,
    author_user_id  bigint references users (id) on delete set null,
    -- The start of the call whose result is unknown. Null if there is none.
    call_started_at timestamptz,
    attempts        integer not null,
    next_attempt_at timestamptz,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    external_id     text,
    author_name     text,
    -- Data by which a retry recognizes a call whose result is unknown.
    marker          jsonb,
    error           jsonb,
    body            text not null,
    -- The time at which Crier found that the message was deleted on the platform.
    deleted_at      timestamptz,
    -- Whether `conversations.unread_count` includes the message.
    is_unread       boolean not null default false,
    -- The data that the connector needs for a reply to the message. Null if it needs none, and for replies.
    reply_context   jsonb
);
-- conversations::replies::messages, conversations::last_directions, conversations::words::earlier,
-- conversations::deletions::use_newest; fk.
create index messages_conversation on messages (conversation_id, sent_at, id);
-- conversations::receive::insert (on conflict), conversations::receive::known, conversations::receive::replace_body,
-- conversations::replies::end, conversations::deletions::known, adoptions::is_taken, adoptions::claim.
create unique index messages_external on messages (brand_id, account_id, external_id) where external_id is not null;
-- fk.
create index messages_author on messages (author_user_id) where author_user_id is not null;
-- conversations::mark_read.
create index messages_unread on messages (conversation_id) where is_unread;
-- conversations::deletions::candidates.
create index messages_recent on messages (account_id, sent_at, external_id)
    where direction = 'inbound' and status = 'received' and deleted_at is null;

-- The texts of messages count as stored text.
create function count_message() returns trigger language plpgsql as $$
declare
    before bigint := 0;
    after bigint := 0;
begin
    if tg_op <> 'INSERT' then
        before := stored_bytes(old.id, octet_length(old.body));
    end if;
    if tg_op <> 'DELETE' then
        after := stored_bytes(new.id, octet_length(new.body));
    end if;
    perform count_texts(coalesce(new.brand_id, old.brand_id), after - before);
    return null;
end
$$;
create trigger count_new_message after insert on messages
    for each row when (stored_bytes(new.id, octet_length(new.body)) > 0) execute function count_message();
create trigger count_changed_message after update of body on messages
    for each row when (octet_length(old.body) <> octet_length(new.body)) execute function count_message();
create trigger count_removed_message after delete on messages
    for each row when (stored_bytes(old.id, octet_length(old.body)) > 0) execute function count_message();

-- The progress of reading the inbox of an account.
create table inbox_syncs (
    account_id   bigint primary key references social_accounts (id) on delete cascade,
    -- Null if the platform has no inbox.
    next_sync_at timestamptz,
    synced_at    timestamptz,
    -- The time for which a sync was last requested, by which a running sync notices a further request.
    requested_at timestamptz,
    failures     integer not null default 0,
    created_at   timestamptz not null,
    last_error   jsonb,
    -- The connector's cursor of each stream.
    cursors      jsonb not null,
    -- The streams with which the next sync continues. Empty: all streams.
    unfinished   jsonb not null default '[]'
);
-- inbox_syncs::enqueue_due, misdated::correct_future_times.
create index inbox_syncs_due on inbox_syncs (next_sync_at) where next_sync_at is not null;


-- # Analytics

-- The newest metrics of each published target.
create table target_analytics (
    target_id    bigint primary key references post_targets (id) on delete cascade,
    post_id      bigint not null,
    brand_id     bigint not null references brands (id) on delete cascade,
    account_id   bigint not null,
    published_at timestamptz not null,
    -- The time of the next read. Null: never.
    next_at      timestamptz,
    -- Whether the post was deleted on the platform.
    is_gone      boolean not null default false,
    impressions  bigint,
    reach        bigint,
    likes        bigint,
    comments     bigint,
    shares       bigint,
    clicks       bigint
);
-- analytics::days_of_posts, analytics::engagements, and all of report_metrics; fk.
create index target_analytics_brand on target_analytics (brand_id, published_at);
-- analytics::due_targets, analytics::set_next.
create index target_analytics_due on target_analytics (account_id, next_at) where next_at is not null;

-- The metrics of a target at each read.
create table target_metrics (
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

-- The metrics of an account, one row per day.
create table account_metrics (
    account_id bigint not null references social_accounts (id) on delete cascade,
    at         timestamptz not null,
    followers  bigint,
    following  bigint,
    posts      bigint,
    primary key (account_id, at)
);

-- Metrics that the platform rejected for an account, and the time until which Crier does not request them.
create table metrics_set_aside (
    account_id bigint not null references social_accounts (id) on delete cascade,
    name       text not null,
    until      timestamptz not null,
    primary key (account_id, name)
);

-- The time up to which published targets have a row in `target_analytics`. One row.
create table analytics_progress (
    id         integer primary key check (id = 1),
    seen_until timestamptz not null
);
insert into analytics_progress (id, seen_until) values (1, '1970-01-01T00:00:00+00:00');


-- # Reports and email

-- Reports for a brand's clients.
create table reports (
    id         bigint generated always as identity primary key,
    brand_id   bigint not null references brands (id) on delete cascade,
    name       text not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- [{type, title, options}]
    widgets    jsonb not null
);
-- reports::list, reports::count, leftovers::exist; fk.
create index reports_brand on reports (brand_id, id);

-- The schedules on which Crier exports and emails a report, in the brand's time zone.
create table report_schedules (
    id          bigint generated always as identity primary key,
    report_id   bigint not null references reports (id) on delete cascade,
    frequency   text not null check (frequency in ('daily', 'weekly', 'monthly', 'cron')),
    cron        text,
    -- HH:MM. Null for `cron`.
    time        text,
    format      text not null,
    -- Whether a CSV file begins with a byte order mark.
    has_bom     boolean not null,
    -- ["ann@example.com"]
    recipients  jsonb not null,
    next_run_at timestamptz not null,
    last_run_at timestamptz,
    created_at  timestamptz not null,
    updated_at  timestamptz not null
);
-- report_schedules::of_reports; fk.
create index report_schedules_report on report_schedules (report_id);
-- report_schedules::due.
create index report_schedules_due on report_schedules (next_run_at);

-- Exports of reports. The file is deleted before the row, which is deleted with the report.
create table report_deliveries (
    id           bigint generated always as identity primary key,
    report_id    bigint not null references reports (id) on delete cascade,
    -- The brand of the report.
    brand_id     bigint not null,
    schedule_id  bigint references report_schedules (id) on delete set null,
    status       text not null check (status in ('pending', 'processing', 'sent', 'failed')),
    format       text not null,
    -- Whether a CSV file begins with a byte order mark.
    has_bom      boolean not null,
    starts_on    date not null,
    ends_on      date not null,
    -- Null if there is no file yet, or if it was deleted.
    file_id      bigint references files (id) on delete set null,
    size_bytes   bigint,
    error        jsonb,
    -- The time at which Crier deletes the file.
    expires_at   timestamptz,
    completed_at timestamptz,
    created_at   timestamptz not null,
    updated_at   timestamptz not null
);
-- report_deliveries::list, files::mark_of_report_for_deletion; fk.
create index report_deliveries_report on report_deliveries (report_id, id);
-- report_schedules::due; fk.
create index report_deliveries_schedule on report_deliveries (schedule_id) where schedule_id is not null;
-- fk: files::delete_rows.
create index report_deliveries_file on report_deliveries (file_id) where file_id is not null;
-- report_deliveries::expire_files.
create index report_deliveries_expiring on report_deliveries (expires_at) where file_id is not null;

-- Emails: those to send, and those of the last 30 days.
create table mails (
    id              bigint generated always as identity primary key,
    -- The user on whose behalf the email is sent.
    user_id         bigint not null references users (id) on delete cascade,
    recipient       text not null,
    subject         text not null,
    body_text       text not null,
    message_id      text not null unique,
    status          text not null check (status in ('pending', 'sent', 'failed')),
    error           text,
    created_at      timestamptz not null,
    sent_at         timestamptz,
    -- Only emails of reports have the following columns.
    body_html       text,
    unsubscribe_url text,
    delivery_id     bigint references report_deliveries (id) on delete cascade,
    -- Whether the file of the delivery is attached.
    has_file        boolean not null
);
-- fk.
create index mails_user on mails (user_id);
-- fk.
create index mails_delivery on mails (delivery_id) where delivery_id is not null;
-- mails::purge.
create index mails_ended on mails (created_at) where status <> 'pending';

-- The recipients of a delivery, and the state of their emails.
create table report_recipients (
    delivery_id bigint not null references report_deliveries (id) on delete cascade,
    position    integer not null,
    recipient   text not null,
    status      text not null check (status in ('pending', 'sent', 'failed')),
    error       jsonb,
    mail_id     bigint references mails (id) on delete set null,
    primary key (delivery_id, position)
);
-- report_deliveries::record_mail, report_deliveries::stop_rejected; fk: mails::purge.
create index report_recipients_mail on report_recipients (mail_id) where mail_id is not null;

-- Addresses that get no reports of a workspace: the recipient unsubscribed, or a mail server rejected the address
-- permanently.
create table report_mail_stops (
    workspace_id    bigint not null references workspaces (id) on delete cascade,
    recipient       text not null,
    reason          text not null,
    -- The time of the first stop. No statement reads it; it answers questions of recipients.
    created_at      timestamptz not null,
    is_unsubscribed boolean not null default false,
    -- report_deliveries::unsubscribe and stop_rejected (on conflict), report_deliveries::mail_stop, resubscribe and
    -- resume_rejected; fk.
    primary key (workspace_id, recipient)
);

-- Problems that wait for the next email to a user. A problem occurs once in an email, which deletes it here.
-- `subject_id` has no foreign key: an email omits what no longer exists.
create table notices (
    user_id    bigint not null references users (id) on delete cascade,
    -- account_expired, account_expiring, webhook_disabled, feed_failing, feed_not_posted, post_pending, post_failed,
    -- post_rejected
    kind       text not null,
    -- The account, the webhook, the feed or the post.
    subject_id bigint not null,
    created_at timestamptz not null,
    primary key (user_id, kind, subject_id)
);
-- notices::due.
create index notices_created on notices (created_at, user_id);

-- Emails per UTC day that a workspace caused, for the limits of its plan and of each address. The counts remain when
-- the reports are deleted.
create table mail_counts (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    day          date not null,
    -- report, digest, invitation
    kind         text not null,
    -- An address, or empty for the total of all addresses.
    recipient    text not null,
    mails        bigint not null,
    primary key (workspace_id, day, kind, recipient)
);
-- mail_counts::purge.
create index mail_counts_day on mail_counts (day);


-- # Link in bio

-- Link-in-bio pages.
create table bio_pages (
    id         bigint generated always as identity primary key,
    brand_id   bigint not null references brands (id) on delete cascade,
    slug       text not null unique,
    title      text not null,
    bio        text,
    theme      text not null check (theme in ('light', 'dark', 'ocean', 'sunset', 'forest')),
    -- An image of the media library.
    avatar_id  bigint references media (id) on delete set null,
    views      bigint not null default 0,
    -- Incremented with each change, except of views and clicks, so that a process knows whether the page in its cache
    -- is current.
    version    bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
-- bio_pages::list, bio_pages::count_of_brand, bio_pages::links_of_brand; fk.
create index bio_pages_brand on bio_pages (brand_id, id);
-- bio_pages::is_avatar; fk.
create index bio_pages_avatar on bio_pages (avatar_id) where avatar_id is not null;

-- The links of a page.
create table bio_links (
    id         bigint generated always as identity primary key,
    page_id    bigint not null references bio_pages (id) on delete cascade,
    position   integer not null,
    title      text not null,
    url        text not null,
    clicks     bigint not null default 0,
    icon       text,
    -- Whether the link is highlighted.
    is_primary boolean not null
);
-- bio_pages::links, bio_pages::links_of_brand, bio_pages::delete_other_links; fk.
create index bio_links_page on bio_links (page_id, position);


-- # Webhooks and events

-- Webhook endpoints of users.
create table webhooks (
    id              bigint generated always as identity primary key,
    user_id         bigint not null references users (id) on delete cascade,
    url             text not null,
    events          jsonb not null,
    description     text,
    is_active       boolean not null,
    -- Null if the user deactivated the endpoint.
    disabled_reason text,
    -- The signing secret, encrypted.
    secret          bytea not null,
    -- The time since which every attempt has failed. Null after a success.
    failing_since   timestamptz,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    -- The number of consecutive attempts that failed or were slow. Ten of them open the circuit of the endpoint.
    strikes         integer not null default 0
);
-- webhooks::list, webhooks::count, webhooks::activity, events::emit; fk.
create index webhooks_user on webhooks (user_id);

-- Events. One row serves all deliveries of an event. No foreign key, and no index: events are read only by ID.
create table events (
    id       bigint generated always as identity primary key,
    -- Null for a sample event, which belongs to no brand.
    brand_id bigint,
    name     text not null,
    -- The envelope, as Crier sends it.
    payload  text not null
);

-- Deliveries of an event to an endpoint. The end of a delivery changes no indexed column: with free space on the page
-- (`fillfactor`), it updates no index.
create table webhook_deliveries (
    id              bigint generated always as identity primary key,
    webhook_id      bigint not null,
    event_id        bigint not null,
    status          text not null,
    response_code   integer,
    attempts        integer not null default 0,
    max_attempts    integer not null,
    duration_ms     bigint,
    error           text,
    response_body   text,
    next_attempt_at timestamptz,
    last_attempt_at timestamptz,
    created_at      timestamptz not null,
    updated_at      timestamptz not null
) with (fillfactor = 70);
-- deliveries::list, deliveries::recover, deliveries::undelivered, webhooks::activity; trigger
-- delete_webhook_deliveries.
create index webhook_deliveries_webhook on webhook_deliveries (webhook_id, id);
-- events::purge; trigger delete_webhook_deliveries.
create index webhook_deliveries_event on webhook_deliveries (event_id);
-- The job of a delivery without an endpoint deletes the delivery.
create trigger delete_webhook_deliveries after delete on events
    for each row execute function delete_children('webhook_deliveries', 'event_id');
create trigger delete_webhook_deliveries after delete on webhooks
    for each row execute function delete_children('webhook_deliveries', 'webhook_id');

-- Attempts of a delivery.
create table webhook_attempts (
    id            bigint generated always as identity,
    delivery_id   bigint not null,
    number        integer not null,
    started_at    timestamptz not null,
    duration_ms   bigint not null,
    outcome       text not null,
    response_code integer,
    error         text,
    response_body text,
    -- Attempts are read only by delivery, so this is the only index. deliveries::attempts,
    -- deliveries::attempt_summaries; trigger delete_webhook_attempts.
    constraint webhook_attempts_delivery primary key (delivery_id, id)
);
create trigger delete_webhook_attempts after delete on webhook_deliveries
    for each row execute function delete_children('webhook_attempts', 'delivery_id');


-- # Jobs and queue

-- Jobs. The columns that each run changes come last, in the order in which a claim and a settle change them: Postgres
-- logs the bytes from the first changed one to the last. Vacuum runs often, because every job leaves dead rows.
create table jobs (
    id             bigint generated always as identity primary key,
    subject_id     bigint not null,
    created_at     timestamptz not null,
    run_at         timestamptz not null,
    max_attempts   integer not null,
    kind           text not null,
    -- The account, endpoint, brand, host or mail server whose jobs are limited together. Null if there is no limit.
    lane           text,
    -- The jobs of one kind and workspace, which are limited together, so that one workspace cannot take all slots.
    workspace_lane text,
    -- The trace context of the request that created the job.
    trace          text,
    -- The number of runs that ended with the death of their worker.
    crashes        integer not null default 0,
    -- The time of the last notification of the workers.
    dispatched_at  timestamptz not null,
    -- Whether the job is ready, but its lane is full or paused. A job that leaves the lane, or the end of the pause,
    -- wakes it.
    waiting        boolean not null default false,
    attempt        integer not null default 0,
    -- Incremented with each claim and rescue. A worker with an older number has lost the job.
    fence          bigint not null default 0,
    worker         text,
    lease_until    timestamptz,
    state          text not null,
    finished_at    timestamptz,
    last_error     text
) with (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05
);
-- Each index serves few statements, and its condition is written so that only those can use it: the plans do not
-- depend on statistics. While few jobs run, all indexes of running jobs cost the same to the planner, so each has a
-- condition of its own. Statements in `jobs/sql` have the name of their file.

-- operate::overview, operate::list of dead jobs.
create index jobs_dead on jobs (kind) where state = 'dead';
-- next_due.sql, promote_due.sql, operate::overview. It begins with the kind, so that a paused kind delays no other
-- one.
create index jobs_due on jobs (kind, run_at) where state = 'scheduled';
-- jobs::dispatch::purge. It begins with the state, because dead jobs are kept longer than others.
create index jobs_ended on jobs (state, finished_at) where finished_at is not null;
-- operate::list of dead or cancelled jobs.
create index jobs_given_up on jobs (state, id) where state = 'dead' or state = 'cancelled';
-- operate::list of a lane. As an expression, the lane cannot serve other statements, which would then read all jobs
-- of the lane. Running jobs are found by `jobs_lane_running`.
create index jobs_lane on jobs ((lane || ''), id) where lane is not null and state <> 'running';
-- lock_lanes, load_lanes.sql, lanes_to_sweep.sql, operate::lane, operate::list of a lane,
-- workspaces::waiting_lanes.
create index jobs_lane_running on jobs (lane) where state = 'running' and lane is not null;
-- lock_waiting_jobs, lanes_to_sweep.sql, waited_for.sql, operate::lane, operate::overview, operate::list of ready
-- jobs. In the order in which a lane's jobs are woken.
create index jobs_lane_waiting on jobs (lane, run_at, id) where state = 'ready' and waiting and lane is not null;
-- rescue.sql, expired.sql, misdated::correct_future_times, operate::overview, operate::list of running jobs.
create index jobs_leased on jobs (lease_until) where state = 'running' and lease_until is not null;
-- oldest_unclaimed.sql, renotify_stale.sql, misdated::correct_future_times, operate::overview, operate::list of ready jobs.
create index jobs_ready on jobs (kind, dispatched_at) where state = 'ready' and not waiting;
-- operate::list of scheduled jobs.
create index jobs_scheduled on jobs (kind, id) where state = 'scheduled';
-- Allows one unfinished job per kind and subject (on conflict of all enqueues). operate::retry, posts::purge,
-- jobs::cancel_subject, jobs::run_now, jobs::is_running, jobs::running_among, operate::due_ids,
-- operate::count_due_posts, post_overview::overdue.
create unique index jobs_subject on jobs (kind, subject_id) where state in ('scheduled', 'ready', 'running');
-- lock_lanes, running_by_workspace.sql, waited_for.sql.
create index jobs_workspace_running on jobs (workspace_lane) where state = 'running' and workspace_lane is not null;
-- workspaces::waiting_lanes, waited_for.sql.
create index jobs_workspace_waiting on jobs (workspace_lane, lane)
    where state = 'ready' and waiting and workspace_lane is not null;
-- misdated::correct_future_times. The times of jobs without an error were chosen by users, and can be years away.
create index jobs_retries on jobs (run_at) where state = 'scheduled' and last_error is not null;

-- Locks lanes until the end of the transaction, and returns the number of running jobs of each lane and of each
-- workspace lane, whether the lane is paused, and its places if they are narrowed. For claim.sql and wake_lanes.sql.
--
-- Each statement of a function sees what was committed before it, including the claims of earlier lock holders. A
-- statement that took the locks itself would count the jobs that it saw before it waited. With a function, a claim is
-- one statement, and no lane is locked while the database waits for its client.
--
-- The settings keep a generic plan that uses the indexes: planning these statements takes ten times as long as
-- running them, and the plan must serve large tables even if it was made on small ones.
create function lock_lanes(lanes text[], workspaces text[], at timestamptz)
returns table (lane text, running bigint, paused boolean, places bigint)
language plpgsql rows 100
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    -- All transactions lock in the order of the bytes, which prevents deadlocks. Postgres does not flatten a subquery
    -- with its own `order by`, so it keeps that order.
    perform pg_advisory_xact_lock(hashtextextended(sorted.name, 0))
    from (select distinct l.name collate "C" as name from unnest(lanes) l (name) order by 1) sorted;
    return query
    select l.name, (select count(*) from jobs j where j.lane = l.name and j.state = 'running'),
        exists (select 1 from paused_lanes p where p.lane = l.name and p.paused_until > at offset 0),
        (select n.places from narrow_lanes n where n.lane = l.name)
    from (select distinct u.name from unnest(lanes) u (name)) l
    union all
    select w.name, (select count(*) from jobs j where j.workspace_lane = w.name and j.state = 'running'), false, null
    from (select distinct u.name from unnest(workspaces) u (name)) w;
end
$$;

-- Locks the oldest waiting jobs of lanes, as many of each lane as `counts` says, and returns them. For
-- wake_lanes.sql.
--
-- As above, the function sees what was committed while its caller waited for the locks of the lanes. A caller that
-- chose jobs before it waited would also lock a job that the previous lock holder has woken. A claim, which skips
-- locked jobs, would then skip that job.
create function lock_waiting_jobs(lanes text[], counts bigint[], kinds text[])
returns table (id bigint, lane text, kind text, run_at timestamptz, crashes integer)
language plpgsql rows 100
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return query
    select j.id, l.name, j.kind, j.run_at, j.crashes
    from unnest(lanes, counts) l (name, count)
    cross join lateral (
        select w.id, w.kind, w.run_at, w.crashes
        from jobs w
        where w.lane = l.name and w.state = 'ready' and w.waiting and coalesce(w.kind = any (kinds), false)
        order by w.run_at, w.id
        limit l.count
        for update skip locked
    ) j;
end
$$;

-- Kinds whose jobs do not start.
create table paused_kinds (
    kind text primary key
);

-- Lanes that the rate limit of a platform paused.
create table paused_lanes (
    lane         text primary key,
    paused_until timestamptz not null
);

-- Lanes with fewer places than those of their kind.
create table narrow_lanes (
    lane   text primary key,
    places bigint not null
);

-- Periods in which Crier held back the jobs of an account: a platform paused the lane, or more jobs were due than the
-- lane has places. A post that waited for this is not late.
create table lane_holds (
    lane       text not null,
    held_since timestamptz not null,
    held_until timestamptz not null,
    primary key (lane, held_since)
);
-- jobs::holds::purge.
create index lane_holds_over on lane_holds (held_until);


-- # Idempotency

-- Responses, by API key and `Idempotency-Key`. `status` is null while an operation with external calls holds the key
-- on a lease.
create table idempotency_keys (
    api_key_id  bigint not null,
    key         text not null,
    -- A hash of method, path, query and body of the request.
    fingerprint bytea not null,
    status      integer,
    -- The `Location`, if `response` is null.
    location    text,
    lease_until timestamptz,
    created_at  timestamptz not null,
    -- For a response that is too large: a JSON array with the IDs of its records, from which it is rendered again.
    records     text,
    -- The request, for the list of an API key's writes. Null if the request has no endpoint.
    method      text,
    path        text,
    -- The `Location` and the body, compressed with a dictionary and encrypted.
    response    bytea,
    -- keys::authenticate, idempotency::read, idempotency::store; trigger delete_idempotency_keys.
    primary key (api_key_id, key)
);
-- idempotency::purge.
create index idempotency_keys_age on idempotency_keys (created_at);
-- A response that remains without its API key is deleted a day later.
create trigger delete_idempotency_keys after delete on api_keys
    for each row execute function delete_children('idempotency_keys', 'api_key_id');


-- # Sandbox platform

-- Handles of the simulated platform. A handle belongs to the workspace that first connected it.
create table sandbox_handles (
    handle       text primary key,
    workspace_id bigint not null references workspaces (id) on delete cascade,
    -- Set by a post with `[expire]`, cleared when the account is connected again.
    expired      boolean not null default false
);

-- Posts on the simulated platform, the parts of their threads, and their first comments.
create table sandbox_posts (
    id         bigint generated always as identity,
    handle     text not null,
    -- The key by which a repeated call finds the post of the first one.
    key        text not null unique,
    -- The post under which the page shows this part of its thread, or first comment. Null for a post.
    root_id    bigint,
    is_comment boolean not null default false,
    content    text not null,
    created_at timestamptz not null,
    -- [{url, alt}]
    media      jsonb not null,
    -- sandbox::timeline, sandbox::count, sandbox::comment, sandbox::delete; trigger delete_sandbox_posts.
    constraint sandbox_posts_handle primary key (handle, id)
);
-- sandbox::replies.
create index sandbox_posts_root on sandbox_posts (root_id, id) where root_id is not null;
-- Deletes the posts of a deleted handle. `delete_children` works only for parents with an ID.
create function delete_sandbox_posts() returns trigger language plpgsql as $$
begin
    delete from sandbox_posts where handle = old.handle;
    return null;
end
$$;
create trigger delete_sandbox_posts after delete on sandbox_handles
    for each row execute function delete_sandbox_posts();

-- Comments of visitors on a sandbox post, and replies of its account.
create table sandbox_comments (
    id         bigint generated always as identity primary key,
    post_id    bigint not null,
    name       text not null,
    body       text not null,
    created_at timestamptz not null,
    -- The handle of the post.
    handle     text not null,
    -- Whether the account wrote the comment, as a reply to `parent_id`.
    is_own     boolean not null default false,
    parent_id  bigint,
    -- The key by which a repeated call finds the reply of the first one.
    key        text
);
-- sandbox::comment, sandbox::comments; trigger delete_sandbox_comments.
create index sandbox_comments_post on sandbox_comments (post_id, id);
-- sandbox::comments_after.
create index sandbox_comments_handle on sandbox_comments (handle, created_at, id);
-- sandbox::answer (on conflict), sandbox::find_answer.
create unique index sandbox_comments_once on sandbox_comments (key) where key is not null;
create trigger delete_sandbox_comments after delete on sandbox_posts
    for each row execute function delete_children('sandbox_comments', 'post_id');


-- # Operations

-- The API key of the first start, until Crier has shown it. `key_id` is null until the key is created. A start that
-- ends before it has shown the key leaves this row; the next start replaces the key. At most one row.
create table first_key (
    id      smallint primary key check (id = 1),
    user_id bigint not null references users (id) on delete cascade,
    key_id  bigint references api_keys (id) on delete set null
);

-- A known text, encrypted with each key that the installation has used. Crier does not start with another key.
create table secret_key_checks (
    key_id bigint primary key,
    sealed bytea not null
);

-- The random id of the directory of the media library, which is also in its file `storage.id`. Crier does not start with
-- another directory, such as the mount point of a disk that is not mounted. A bucket has none. At most one row.
create table storage_marker (
    id     smallint primary key check (id = 1),
    marker text not null
);

-- The log of changes to operators.
create table operator_changes (
    id         bigint generated always as identity primary key,
    email      text not null,
    change     text not null,
    created_at timestamptz not null
);
