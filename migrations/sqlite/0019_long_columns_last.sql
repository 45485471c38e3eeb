-- SQLite reads a row from its beginning: what stands behind a text of 60 KB costs 15 more pages to read. So the text is last.
create table content_plan_items_new (
    id         integer primary key autoincrement,
    plan_id    bigint not null references content_plans (id) on delete cascade,
    planned_at timestamptz,
    post_id    bigint references posts (id) on delete set null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    title      text not null,
    content    text
);
insert into content_plan_items_new (id, plan_id, planned_at, post_id, created_at, updated_at, title, content)
select id, plan_id, planned_at, post_id, created_at, updated_at, title, content
from content_plan_items;
-- An id that was given out once is not given out again.
delete from sqlite_sequence where name = 'content_plan_items_new';
insert into sqlite_sequence (name, seq)
select 'content_plan_items_new', seq from sqlite_sequence where name = 'content_plan_items';
drop table content_plan_items;
alter table content_plan_items_new rename to content_plan_items;
create index content_plan_items_plan on content_plan_items (plan_id);
create index content_plan_items_post on content_plan_items (post_id) where post_id is not null;
