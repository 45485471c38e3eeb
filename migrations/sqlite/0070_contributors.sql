-- The role contributor. SQLite cannot change a check, so the table is copied.
create table new_members (
    brand_id   bigint not null references brands (id) on delete cascade,
    user_id    bigint not null references users (id) on delete cascade,
    role       text not null check (role in ('owner', 'admin', 'editor', 'contributor')),
    created_at timestamptz not null,
    primary key (brand_id, user_id)
);
insert into new_members select brand_id, user_id, role, created_at from brand_members;
drop table brand_members;
alter table new_members rename to brand_members;
create index brand_members_user on brand_members (user_id);
