-- The applications that an operator registered at a platform. Without brand and workspace: of the installation.
-- instance: the server that a person named, at platforms that consist of many (Mastodon); empty elsewhere.
create table applications (
    id            integer primary key autoincrement,
    platform      text not null,
    target        text not null check (target in ('default', 'page')),
    workspace_id  bigint references workspaces (id) on delete cascade,
    brand_id      bigint references brands (id) on delete cascade,
    instance      text not null default '',
    redirect_uri  text not null default '',
    client_id     text not null,
    client_secret bytea not null,
    created_at    timestamptz not null,
    updated_at    timestamptz not null,
    check (workspace_id is null or brand_id is null)
);
create unique index applications_place
    on applications (platform, target, coalesce(workspace_id, 0), coalesce(brand_id, 0), instance);

-- The one-time URLs at which a person connects an account. Only hashes of the token, the state and the cookie are kept.
create table authorizations (
    id           integer primary key autoincrement,
    token_hash   bytea not null unique,
    brand_id     bigint not null references brands (id) on delete cascade,
    platform     text not null,
    target       text not null check (target in ('default', 'page')),
    instance     text not null default '',
    stage        text not null check (stage in ('issued', 'at_platform', 'exchanging', 'choosing', 'used')),
    state_hash   bytea unique,
    browser_hash bytea,
    account_id   bigint,
    expires_at   timestamptz not null,
    created_at   timestamptz not null,
    -- The attempt that is under way: verifier, application, tokens, choices.
    data         bytea
);
create index authorizations_expiry on authorizations (expires_at);

-- token_renewable is null where no one looks after the tokens: credentials that do not expire, or that a publish renews.
alter table social_accounts add column application text;
alter table social_accounts add column token_renewable boolean;
alter table social_accounts add column token_rotates boolean not null default false;
alter table social_accounts add column refresh_expires_at timestamptz;
-- How many of the warnings before the end of the access were sent.
alter table social_accounts add column warnings integer not null default 0;
-- When the tokens are to be renewed; token_check_at: then, or at the next warning, whichever is earlier.
alter table social_accounts add column token_renew_at timestamptz;
alter table social_accounts add column token_check_at timestamptz;
create index social_accounts_check on social_accounts (token_check_at) where token_check_at is not null;
create index social_accounts_application on social_accounts (platform, application) where application is not null;
