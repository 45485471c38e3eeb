-- One text for both engines but for generated ids. A status is CHECKed here and is an enum in common/src/domain: change both.

create table workspaces (
    id         bigint generated always as identity primary key,
    name       text not null,
    plan       text not null,
    created_at timestamptz not null,
    updated_at timestamptz not null
);

create table users (
    id           bigint generated always as identity primary key,
    workspace_id bigint not null references workspaces (id) on delete cascade,
    email        text not null unique,
    name         text not null,
    created_at   timestamptz not null,
    updated_at   timestamptz not null
);
create index users_workspace on users (workspace_id);

create table api_keys (
    id           bigint generated always as identity primary key,
    user_id      bigint not null references users (id) on delete cascade,
    mode         text not null check (mode in ('live', 'test')),
    scopes       text not null,
    hash         bytea not null unique,
    prefix       text not null,
    last4        text not null,
    last_used_at timestamptz,
    created_at   timestamptz not null
);
create index api_keys_user on api_keys (user_id);

create table brands (
    id           bigint generated always as identity primary key,
    workspace_id bigint not null references workspaces (id) on delete cascade,
    name         text not null,
    description  text,
    website      text,
    timezone     text not null,
    created_at   timestamptz not null,
    updated_at   timestamptz not null
);
create index brands_workspace on brands (workspace_id);

create table brand_members (
    brand_id   bigint not null references brands (id) on delete cascade,
    user_id    bigint not null references users (id) on delete cascade,
    role       text not null check (role in ('owner', 'admin', 'editor')),
    created_at timestamptz not null,
    primary key (brand_id, user_id)
);
create index brand_members_user on brand_members (user_id);

-- What has been used of a cap that is counted by the month (UTC, 'YYYY-MM').
create table usage (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    month        text not null,
    posts        bigint not null default 0,
    primary key (workspace_id, month)
);

-- body: encrypted. status is null while a connect or a refresh holds the key on a lease.
create table idempotency_keys (
    api_key_id  bigint not null references api_keys (id) on delete cascade,
    key         text not null,
    fingerprint bytea not null,
    status      integer,
    location    text,
    body        bytea,
    lease_until timestamptz,
    created_at  timestamptz not null,
    primary key (api_key_id, key)
);
create index idempotency_keys_age on idempotency_keys (created_at);

create table social_accounts (
    id               bigint generated always as identity primary key,
    workspace_id     bigint not null references workspaces (id) on delete cascade,
    platform         text not null,
    external_id      text not null,
    name             text not null,
    username         text,
    profile_url      text,
    avatar_url       text,
    kind             text not null check (kind in ('profile', 'page', 'channel', 'site', 'store')),
    status           text not null check (status in ('active', 'expired')),
    secrets          bytea not null,
    token_expires_at timestamptz,
    -- Someone is getting new tokens: a refresh token can be used once.
    refreshing_until timestamptz,
    last_error       jsonb,
    connected_at     timestamptz not null,
    created_at       timestamptz not null,
    updated_at       timestamptz not null,
    unique (workspace_id, platform, external_id)
);

create table brand_accounts (
    brand_id   bigint not null references brands (id) on delete cascade,
    account_id bigint not null references social_accounts (id) on delete cascade,
    created_at timestamptz not null,
    primary key (brand_id, account_id)
);
create index brand_accounts_account on brand_accounts (account_id);

-- deleted_at: gone for clients; the row stays until a target that was in flight has ended.
create table posts (
    id            bigint generated always as identity primary key,
    brand_id      bigint not null references brands (id) on delete cascade,
    author_id     bigint references users (id) on delete set null,
    status        text not null check (status in ('draft', 'pending_approval', 'scheduled', 'publishing', 'published', 'partially_published', 'failed')),
    content       text not null,
    schedule_type text not null check (schedule_type in ('now', 'scheduled', 'draft')),
    scheduled_at  timestamptz,
    published_at  timestamptz,
    media         jsonb not null,
    counted       boolean not null,
    reject_reason text,
    deleted_at    timestamptz,
    created_at    timestamptz not null,
    updated_at    timestamptz not null
);
create index posts_brand on posts (brand_id, id) where deleted_at is null;
create index posts_brand_status on posts (brand_id, status, id) where deleted_at is null;
create index posts_deleted on posts (deleted_at) where deleted_at is not null;

-- account_id has no foreign key: a target outlives the account that it went to.
create table post_targets (
    id              bigint generated always as identity primary key,
    post_id         bigint not null references posts (id) on delete cascade,
    account_id      bigint not null,
    platform        text not null,
    position        integer not null,
    status          text not null check (status in ('pending', 'publishing', 'published', 'failed')),
    content         text,
    media           jsonb,
    options         jsonb not null,
    marker          jsonb,
    call_started_at timestamptz,
    external_id     text,
    url             text,
    error           jsonb,
    attempts        integer not null default 0,
    next_attempt_at timestamptz,
    published_at    timestamptz,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    unique (post_id, account_id)
);

create table target_attempts (
    id          bigint generated always as identity primary key,
    target_id   bigint not null references post_targets (id) on delete cascade,
    number      integer not null,
    started_at  timestamptz not null,
    duration_ms bigint not null,
    outcome     text not null check (outcome in ('published', 'retried', 'failed', 'unknown')),
    status_code integer,
    error       jsonb,
    created_at  timestamptz not null,
    updated_at  timestamptz not null
);
create index target_attempts_target on target_attempts (target_id);

create table webhooks (
    id              bigint generated always as identity primary key,
    user_id         bigint not null references users (id) on delete cascade,
    url             text not null,
    events          jsonb not null,
    description     text,
    is_active       boolean not null,
    disabled_reason text,
    secret          bytea not null,
    -- Since when every attempt has failed; null after a success.
    failing_since   timestamptz,
    created_at      timestamptz not null,
    updated_at      timestamptz not null
);
create index webhooks_user on webhooks (user_id);

-- One row an event, whoever listens; payload is the envelope as it is sent.
create table events (
    id         bigint generated always as identity primary key,
    brand_id   bigint not null,
    name       text not null,
    payload    text not null,
    created_at timestamptz not null
);

create table webhook_deliveries (
    id              bigint generated always as identity primary key,
    webhook_id      bigint not null references webhooks (id) on delete cascade,
    event_id        bigint not null references events (id) on delete cascade,
    status          text not null check (status in ('pending', 'retrying', 'succeeded', 'failed')),
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
);
create index webhook_deliveries_webhook on webhook_deliveries (webhook_id, id);
create index webhook_deliveries_event on webhook_deliveries (event_id);

create table webhook_attempts (
    id            bigint generated always as identity primary key,
    delivery_id   bigint not null references webhook_deliveries (id) on delete cascade,
    number        integer not null,
    started_at    timestamptz not null,
    duration_ms   bigint not null,
    outcome       text not null,
    response_code integer,
    error         text,
    response_body text
);
create index webhook_attempts_delivery on webhook_attempts (delivery_id);

create table jobs (
    id            bigint generated always as identity primary key,
    kind          text not null,
    subject_id    bigint not null,
    lane          text,
    state         text not null check (state in ('scheduled', 'ready', 'running', 'done', 'dead', 'cancelled')),
    priority      integer not null default 0,
    run_at        timestamptz not null,
    attempt       integer not null default 0,
    max_attempts  integer not null,
    crashes       integer not null default 0,
    fence         bigint not null default 0,
    lease_until   timestamptz,
    worker        text,
    -- Ready, but its lane is full or paused: whoever leaves the lane, or the end of the pause, wakes it.
    waiting       boolean not null default false,
    trace         text,
    last_error    text,
    dispatched_at timestamptz not null,
    created_at    timestamptz not null,
    finished_at   timestamptz
);
-- Each index serves one statement of the dispatcher or of the engine, which alone can use it: no plan depends on statistics.
create index jobs_due on jobs (run_at) where state = 'scheduled';
create index jobs_ready on jobs (dispatched_at) where state = 'ready' and not waiting;
create index jobs_waiting on jobs (lane, run_at) where state = 'ready' and waiting;
create index jobs_running on jobs (lane) where state = 'running';
create index jobs_lease on jobs (lease_until) where state = 'running';
create index jobs_dead on jobs (kind) where state = 'dead';
create index jobs_ended on jobs (finished_at) where state in ('done', 'dead', 'cancelled');
-- One piece of work for a subject at a time.
create unique index jobs_subject on jobs (kind, subject_id) where state in ('scheduled', 'ready', 'running');

create table paused_kinds (
    kind       text primary key,
    created_at timestamptz not null
);

-- Lanes that a platform's rate limit has paused.
create table paused_lanes (
    lane         text primary key,
    paused_until timestamptz not null
);

-- The platform inside Crier (contract, section 6). A handle is of the workspace that connected it first.
create table sandbox_handles (
    handle       text primary key,
    workspace_id bigint not null references workspaces (id) on delete cascade,
    -- Set by [expire], lifted by connecting again.
    expired      boolean not null default false,
    created_at   timestamptz not null
);

-- key: what makes a repeated call find the first one's post; target_id: the target in the marker.
create table sandbox_posts (
    id         bigint generated always as identity primary key,
    handle     text not null references sandbox_handles (handle) on delete cascade,
    key        text not null unique,
    content    text not null,
    created_at timestamptz not null
);
create index sandbox_posts_handle on sandbox_posts (handle, id);

-- What visitors write under a sandbox post.
create table sandbox_comments (
    id         bigint generated always as identity primary key,
    post_id    bigint not null references sandbox_posts (id) on delete cascade,
    name       text not null,
    body       text not null,
    created_at timestamptz not null
);
create index sandbox_comments_post on sandbox_comments (post_id, id);

-- The queue's churn: room for in-place updates, and dead rows cleared early.
alter table jobs set (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
