-- What is said of images counts as text, too: bytes that a brand already has take up no further storage, so that any number
-- of images could have the same ones. `search` repeats the file's name and the description.

create trigger count_new_image after insert on media
when (
        octet_length(new.filename) + coalesce(octet_length(new.alt_text), 0) + coalesce(octet_length(new.source_url), 0)
        + octet_length(new.search) + new.id * 2531 % 4096
    ) / 4096 * 4096 > 0
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, (
        octet_length(new.filename) + coalesce(octet_length(new.alt_text), 0) + coalesce(octet_length(new.source_url), 0)
        + octet_length(new.search) + new.id * 2531 % 4096
    ) / 4096 * 4096
    from brands
    where id = new.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_changed_image after update of filename, alt_text, search on media
when old.search <> new.search
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, (
        octet_length(new.filename) + coalesce(octet_length(new.alt_text), 0) + coalesce(octet_length(new.source_url), 0)
        + octet_length(new.search) + new.id * 2531 % 4096
    ) / 4096 * 4096 - (
        octet_length(old.filename) + coalesce(octet_length(old.alt_text), 0) + coalesce(octet_length(old.source_url), 0)
        + octet_length(old.search) + old.id * 2531 % 4096
    ) / 4096 * 4096
    from brands
    where id = new.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_removed_image after delete on media
when (
        octet_length(old.filename) + coalesce(octet_length(old.alt_text), 0) + coalesce(octet_length(old.source_url), 0)
        + octet_length(old.search) + old.id * 2531 % 4096
    ) / 4096 * 4096 > 0
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, -((
        octet_length(old.filename) + coalesce(octet_length(old.alt_text), 0) + coalesce(octet_length(old.source_url), 0)
        + octet_length(old.search) + old.id * 2531 % 4096
    ) / 4096 * 4096)
    from brands
    where id = old.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

-- Imports stay in the list for a month.
create trigger count_new_import after insert on media_jobs
when (
        512 + octet_length(new.source_url) + coalesce(octet_length(new.alt_text), 0) + new.id * 2531 % 4096
    ) / 4096 * 4096 > 0
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, (
        512 + octet_length(new.source_url) + coalesce(octet_length(new.alt_text), 0) + new.id * 2531 % 4096
    ) / 4096 * 4096
    from brands
    where id = new.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

create trigger count_removed_import after delete on media_jobs
when (
        512 + octet_length(old.source_url) + coalesce(octet_length(old.alt_text), 0) + old.id * 2531 % 4096
    ) / 4096 * 4096 > 0
begin
    insert into storage_usage (workspace_id, bytes, texts)
    select workspace_id, 0, -((
        512 + octet_length(old.source_url) + coalesce(octet_length(old.alt_text), 0) + old.id * 2531 % 4096
    ) / 4096 * 4096)
    from brands
    where id = old.brand_id
    on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
end;

-- What is there already.
insert into storage_usage (workspace_id, bytes, texts)
select b.workspace_id, 0, sum(counted.bytes)
from (
    select brand_id, (
        octet_length(filename) + coalesce(octet_length(alt_text), 0) + coalesce(octet_length(source_url), 0)
        + octet_length(search) + id * 2531 % 4096
    ) / 4096 * 4096 as bytes
    from media
    union all
    select brand_id, (
        512 + octet_length(source_url) + coalesce(octet_length(alt_text), 0) + id * 2531 % 4096
    ) / 4096 * 4096
    from media_jobs
) counted
join brands b on b.id = counted.brand_id
where counted.bytes > 0
group by b.workspace_id
on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
