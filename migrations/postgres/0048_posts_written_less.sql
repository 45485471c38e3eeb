-- As in 0047: the columns that a publish changes come last, in the order in which its start and its end change them. The
-- text and the pictures of a post came between them, and were logged again with each change of its status. The tables are
-- copied, which took six seconds with a million posts on an account each.
lock table posts, post_targets in access exclusive mode;

create table ordered_posts (
    id            bigint generated always as identity primary key,
    brand_id      bigint not null,
    author_id     bigint,
    created_at    timestamptz not null,
    scheduled_at  timestamptz,
    schedule_type text not null check (schedule_type in ('now', 'scheduled', 'draft')),
    media         jsonb not null,
    content       text not null,
    reject_reason text,
    counted       boolean not null,
    deleted_at    timestamptz,
    status        text not null check (status in ('draft', 'pending_approval', 'scheduled', 'publishing', 'published', 'partially_published', 'failed')),
    published_at  timestamptz,
    updated_at    timestamptz not null
);
insert into ordered_posts (
    id, brand_id, author_id, created_at, scheduled_at, schedule_type, media, content, reject_reason, counted,
    deleted_at, status, published_at, updated_at
)
overriding system value
select id, brand_id, author_id, created_at, scheduled_at, schedule_type, media, content, reject_reason, counted,
    deleted_at, status, published_at, updated_at
from posts
order by id;
select setval('ordered_posts_id_seq', last_value, is_called) from posts_id_seq;

create table ordered_targets (
    id              bigint generated always as identity primary key,
    post_id         bigint not null,
    account_id      bigint not null,
    created_at      timestamptz not null,
    position        integer not null,
    platform        text not null,
    content         text,
    media           jsonb,
    options         jsonb not null,
    uploads         jsonb,
    marker          jsonb,
    error           jsonb,
    url             text,
    external_id     text,
    attempts        integer not null default 0,
    status          text not null check (status in ('pending', 'publishing', 'published', 'failed')),
    call_started_at timestamptz,
    next_attempt_at timestamptz,
    published_at    timestamptz,
    updated_at      timestamptz not null,
    unique (post_id, account_id)
) with (fillfactor = 70);
insert into ordered_targets (
    id, post_id, account_id, created_at, position, platform, content, media, options, uploads, marker, error, url,
    external_id, attempts, status, call_started_at, next_attempt_at, published_at, updated_at
)
overriding system value
select id, post_id, account_id, created_at, position, platform, content, media, options, uploads, marker, error, url,
    external_id, attempts, status, call_started_at, next_attempt_at, published_at, updated_at
from post_targets
order by id;
select setval('ordered_targets_id_seq', last_value, is_called) from post_targets_id_seq;

alter table content_plan_items drop constraint content_plan_items_post_id_fkey;
alter table post_media drop constraint post_media_post_id_fkey;
alter table target_analytics drop constraint target_analytics_target_id_fkey;
drop table posts, post_targets;

alter table ordered_posts rename to posts;
alter sequence ordered_posts_id_seq rename to posts_id_seq;
alter table posts rename constraint ordered_posts_pkey to posts_pkey;
alter table posts rename constraint ordered_posts_schedule_type_check to posts_schedule_type_check;
alter table posts rename constraint ordered_posts_status_check to posts_status_check;
create index posts_brand on posts (brand_id, id) where deleted_at is null;
create index posts_brand_status on posts (brand_id, status, id) where deleted_at is null;
create index posts_deleted on posts (deleted_at) where deleted_at is not null;
create index posts_planned on posts (brand_id, scheduled_at) where scheduled_at is not null and deleted_at is null;

alter table ordered_targets rename to post_targets;
alter sequence ordered_targets_id_seq rename to post_targets_id_seq;
alter table post_targets rename constraint ordered_targets_pkey to post_targets_pkey;
alter table post_targets rename constraint ordered_targets_post_id_account_id_key to post_targets_post_id_account_id_key;
alter table post_targets rename constraint ordered_targets_status_check to post_targets_status_check;
create index post_targets_external on post_targets (account_id, external_id) where external_id is not null;
create index post_targets_published on post_targets (published_at) where published_at is not null;

create trigger delete_post_targets after delete on posts
    for each row execute function delete_children('post_targets', 'post_id');
create trigger delete_target_attempts after delete on post_targets
    for each row execute function delete_children('target_attempts', 'target_id');
alter table content_plan_items add constraint content_plan_items_post_id_fkey
    foreign key (post_id) references posts (id) on delete set null;
alter table post_media add constraint post_media_post_id_fkey
    foreign key (post_id) references posts (id) on delete cascade;
alter table target_analytics add constraint target_analytics_target_id_fkey
    foreign key (target_id) references post_targets (id) on delete cascade;
