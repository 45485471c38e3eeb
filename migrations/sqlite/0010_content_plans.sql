-- What is to be posted, before it is a post.
create table content_plans (
    id          integer primary key autoincrement,
    brand_id    bigint not null references brands (id) on delete cascade,
    name        text not null,
    description text,
    starts_on   date,
    ends_on     date,
    created_at  timestamptz not null,
    updated_at  timestamptz not null
);
create index content_plans_brand on content_plans (brand_id, id);

-- post_id: the post made from the item last. One that was deleted counts no more, whether its row is there or not.
create table content_plan_items (
    id         integer primary key autoincrement,
    plan_id    bigint not null references content_plans (id) on delete cascade,
    title      text not null,
    content    text,
    planned_at timestamptz,
    post_id    bigint references posts (id) on delete set null,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
create index content_plan_items_plan on content_plan_items (plan_id);
create index content_plan_items_post on content_plan_items (post_id) where post_id is not null;
