-- What the texts of a workspace take up, in bytes: its posts with what they say on single accounts, and its messages. What
-- else it writes has a cap of its own. Files are in the column `bytes`.
alter table storage_usage add column texts bigint not null default 0;

-- A row counts as its text and 512 bytes, in steps of 4096: all rows in one account would make the writers of a workspace
-- wait for each other. The remainder is rounded up or down by the row's id, evenly, so that the sum is right and a deletion
-- subtracts what was added. 2531: 4096 divided by the golden ratio.
create function stored_bytes(id bigint, text_bytes bigint) returns bigint language sql immutable parallel safe as $$
    select (512 + text_bytes + id * 2531 % 4096) / 4096 * 4096
$$;

create function count_texts(brand bigint, delta bigint) returns void language plpgsql as $$
begin
    if delta <> 0 then
        insert into storage_usage (workspace_id, bytes, texts)
        select workspace_id, 0, delta from brands where id = brand
        on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
    end if;
end
$$;

-- What a target says itself; it has no text where it says the same as the post.
create function target_text(content text, options jsonb) returns bigint language sql stable parallel safe as $$
    select coalesce(octet_length(content), 0) + octet_length(options::text)
$$;

-- Posts. A deleted one no longer counts, nor do its targets, although their rows stay for a while.
create function count_post() returns trigger language plpgsql as $$
declare
    targets bigint := 0;
    before bigint := 0;
    after bigint := 0;
begin
    if tg_op <> 'INSERT' and old.deleted_at is null then
        before := stored_bytes(old.id, octet_length(old.content));
        if tg_op = 'DELETE' or new.deleted_at is not null then
            select coalesce(sum(stored_bytes(t.id, target_text(t.content, t.options))), 0) into targets
            from post_targets t
            where t.post_id = old.id;
        end if;
    end if;
    if tg_op <> 'DELETE' and new.deleted_at is null then
        after := stored_bytes(new.id, octet_length(new.content));
    end if;
    perform count_texts(coalesce(new.brand_id, old.brand_id), after - before - targets);
    if tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end
$$;
create trigger count_new_post after insert on posts
    for each row when (stored_bytes(new.id, octet_length(new.content)) > 0) execute function count_post();
create trigger count_changed_post after update of content, deleted_at on posts
    for each row when (
        octet_length(old.content) <> octet_length(new.content) or old.deleted_at is distinct from new.deleted_at
    )
    execute function count_post();
create trigger count_removed_post before delete on posts
    for each row when (old.deleted_at is null) execute function count_post();

create function count_target() returns trigger language plpgsql as $$
declare
    brand bigint;
    before bigint := 0;
    after bigint := 0;
begin
    if tg_op <> 'INSERT' then
        before := stored_bytes(old.id, target_text(old.content, old.options));
    end if;
    if tg_op <> 'DELETE' then
        after := stored_bytes(new.id, target_text(new.content, new.options));
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
    for each row when (stored_bytes(new.id, target_text(new.content, new.options)) > 0) execute function count_target();
create trigger count_changed_target after update of content, options on post_targets
    for each row when (old.content is distinct from new.content or old.options is distinct from new.options)
    execute function count_target();
create trigger count_removed_target after delete on post_targets
    for each row when (stored_bytes(old.id, target_text(old.content, old.options)) > 0) execute function count_target();

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

-- What is there already. The triggers hold back other writers until the commit.
insert into storage_usage (workspace_id, bytes, texts)
select b.workspace_id, 0, sum(counted.bytes)
from (
    select brand_id, stored_bytes(id, octet_length(content)) as bytes
    from posts
    where deleted_at is null
    union all
    select p.brand_id, stored_bytes(t.id, target_text(t.content, t.options))
    from post_targets t
    join posts p on p.id = t.post_id
    where p.deleted_at is null
    union all
    select brand_id, stored_bytes(id, octet_length(body))
    from messages
) counted
join brands b on b.id = counted.brand_id
where counted.bytes > 0
group by b.workspace_id
on conflict (workspace_id) do update set texts = excluded.texts;
