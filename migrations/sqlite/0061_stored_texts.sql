-- What the texts of a workspace take up, in bytes: its posts with what they say on single accounts, and its messages. What
-- else it writes has a cap of its own. Files are in the column `bytes`.
alter table storage_usage add column texts bigint not null default 0;

-- A row counts as its text and 512 bytes, in steps of 4096, as on Postgres, where all rows in one account would make the
-- writers of a workspace wait for each other. The remainder is rounded up or down by the row's id, evenly, so that the sum is
-- right and a deletion subtracts what was added. 2531: 4096 divided by the golden ratio.

-- Posts. A deleted one no longer counts, nor do its targets, although their rows stay for a while.
create trigger count_new_post after insert on posts
when (512 + octet_length(new.content) + new.id * 2531 % 4096) / 4096 * 4096 > 0
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, (512 + octet_length(new.content) + new.id * 2531 % 4096) / 4096 * 4096
    from brands
    where id = new.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_changed_post after update of content on posts
when old.deleted_at is null and new.deleted_at is null and octet_length(old.content) <> octet_length(new.content)
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, (
            512 + octet_length(new.content) + new.id * 2531 % 4096
        ) / 4096 * 4096
        - (
            512 + octet_length(old.content) + old.id * 2531 % 4096
        ) / 4096 * 4096
    from brands
    where id = new.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_deleted_post after update of deleted_at on posts
when old.deleted_at is null and new.deleted_at is not null
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0,
        -((512 + octet_length(old.content) + old.id * 2531 % 4096) / 4096 * 4096)
            - coalesce((
                select sum(
                    (512 + coalesce(octet_length(t.content), 0) + octet_length(t.options) + t.id * 2531 % 4096) / 4096 * 4096
                )
                from post_targets t
                where t.post_id = old.id
            ), 0)
    from brands
    where id = old.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_removed_post before delete on posts
when old.deleted_at is null
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0,
        -((512 + octet_length(old.content) + old.id * 2531 % 4096) / 4096 * 4096)
            - coalesce((
                select sum(
                    (512 + coalesce(octet_length(t.content), 0) + octet_length(t.options) + t.id * 2531 % 4096) / 4096 * 4096
                )
                from post_targets t
                where t.post_id = old.id
            ), 0)
    from brands
    where id = old.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_new_target after insert on post_targets
when (512 + coalesce(octet_length(new.content), 0) + octet_length(new.options) + new.id * 2531 % 4096) / 4096 * 4096 > 0
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select b.workspace_id, 0,
        (512 + coalesce(octet_length(new.content), 0) + octet_length(new.options) + new.id * 2531 % 4096) / 4096 * 4096
    from posts p
    join brands b on b.id = p.brand_id
    where p.id = new.post_id and p.deleted_at is null
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_changed_target after update of content, options on post_targets
when old.content is not new.content or old.options <> new.options
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select b.workspace_id, 0,
        (512 + coalesce(octet_length(new.content), 0) + octet_length(new.options) + new.id * 2531 % 4096) / 4096 * 4096
        - (512 + coalesce(octet_length(old.content), 0) + octet_length(old.options) + old.id * 2531 % 4096) / 4096 * 4096
    from posts p
    join brands b on b.id = p.brand_id
    where p.id = new.post_id and p.deleted_at is null
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_removed_target after delete on post_targets
when (512 + coalesce(octet_length(old.content), 0) + octet_length(old.options) + old.id * 2531 % 4096) / 4096 * 4096 > 0
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select b.workspace_id, 0,
        -((512 + coalesce(octet_length(old.content), 0) + octet_length(old.options) + old.id * 2531 % 4096) / 4096 * 4096)
    from posts p
    join brands b on b.id = p.brand_id
    where p.id = old.post_id and p.deleted_at is null
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_new_message after insert on messages
when (512 + octet_length(new.body) + new.id * 2531 % 4096) / 4096 * 4096 > 0
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, (512 + octet_length(new.body) + new.id * 2531 % 4096) / 4096 * 4096
    from brands
    where id = new.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_changed_message after update of body on messages
when octet_length(old.body) <> octet_length(new.body)
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, (
            512 + octet_length(new.body) + new.id * 2531 % 4096
        ) / 4096 * 4096
        - (
            512 + octet_length(old.body) + old.id * 2531 % 4096
        ) / 4096 * 4096
    from brands
    where id = new.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_removed_message after delete on messages
when (512 + octet_length(old.body) + old.id * 2531 % 4096) / 4096 * 4096 > 0
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, -((512 + octet_length(old.body) + old.id * 2531 % 4096) / 4096 * 4096)
    from brands
    where id = old.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

-- What is there already.
insert into storage_usage (workspace_id, bytes, texts)
select b.workspace_id, 0, sum(counted.bytes)
from (
    select brand_id, (512 + octet_length(content) + id * 2531 % 4096) / 4096 * 4096 as bytes
    from posts
    where deleted_at is null
    union all
    select p.brand_id,
        (512 + coalesce(octet_length(t.content), 0) + octet_length(t.options) + t.id * 2531 % 4096) / 4096 * 4096
    from post_targets t
    join posts p on p.id = t.post_id
    where p.deleted_at is null
    union all
    select brand_id, (512 + octet_length(body) + id * 2531 % 4096) / 4096 * 4096
    from messages
) counted
join brands b on b.id = counted.brand_id
where counted.bytes > 0
group by b.workspace_id
on conflict (workspace_id) do update set texts = excluded.texts;
