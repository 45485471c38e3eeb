-- Links with which people become users and members of a brand, once. user_id: who invited.
create table invitations (
    id         bigint generated always as identity primary key,
    brand_id   bigint not null references brands (id) on delete cascade,
    user_id    bigint not null references users (id) on delete cascade,
    role       text not null,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    email      text not null,
    hash       bytea not null unique
);
create unique index invitations_email on invitations (brand_id, email);
create index invitations_user on invitations (user_id);
create index invitations_expiry on invitations (expires_at);
