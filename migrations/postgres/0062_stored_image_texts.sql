-- What is said of images counts as text, too: bytes that a brand already has take up no further storage, so that any number
-- of images could have the same ones. `search` repeats the file's name and the description.
create function image_text(filename text, alt_text text, source_url text, search text) returns bigint
language sql immutable parallel safe as $$
    -- Without the 512 bytes of a row: the file counts itself.
    select octet_length(filename) + coalesce(octet_length(alt_text), 0) + coalesce(octet_length(source_url), 0)
        + octet_length(search) - 512
$$;

create function count_image() returns trigger language plpgsql as $$
declare
    before bigint := 0;
    after bigint := 0;
begin
    if tg_op <> 'INSERT' then
        before := stored_bytes(old.id, image_text(old.filename, old.alt_text, old.source_url, old.search));
    end if;
    if tg_op <> 'DELETE' then
        after := stored_bytes(new.id, image_text(new.filename, new.alt_text, new.source_url, new.search));
    end if;
    perform count_texts(coalesce(new.brand_id, old.brand_id), after - before);
    return null;
end
$$;
create trigger count_new_image after insert on media
    for each row when (stored_bytes(new.id, image_text(new.filename, new.alt_text, new.source_url, new.search)) > 0)
    execute function count_image();
create trigger count_changed_image after update of filename, alt_text, search on media
    for each row when (old.search is distinct from new.search) execute function count_image();
-- At the commit: a deletion locks the file after the image, and everything else the count after the file.
create constraint trigger count_removed_image after delete on media
    deferrable initially deferred
    for each row when (stored_bytes(old.id, image_text(old.filename, old.alt_text, old.source_url, old.search)) > 0)
    execute function count_image();

-- Imports stay in the list for a month.
create function count_import() returns trigger language plpgsql as $$
declare
    before bigint := 0;
    after bigint := 0;
begin
    if tg_op = 'DELETE' then
        before := stored_bytes(old.id, octet_length(old.source_url) + coalesce(octet_length(old.alt_text), 0));
    else
        after := stored_bytes(new.id, octet_length(new.source_url) + coalesce(octet_length(new.alt_text), 0));
    end if;
    perform count_texts(coalesce(new.brand_id, old.brand_id), after - before);
    return null;
end
$$;
create trigger count_new_import after insert on media_jobs
    for each row when (
        stored_bytes(new.id, octet_length(new.source_url) + coalesce(octet_length(new.alt_text), 0)) > 0
    )
    execute function count_import();
create trigger count_removed_import after delete on media_jobs
    for each row when (
        stored_bytes(old.id, octet_length(old.source_url) + coalesce(octet_length(old.alt_text), 0)) > 0
    )
    execute function count_import();

-- What is there already.
insert into storage_usage (workspace_id, bytes, texts)
select b.workspace_id, 0, sum(counted.bytes)
from (
    select brand_id, stored_bytes(id, image_text(filename, alt_text, source_url, search)) as bytes
    from media
    union all
    select brand_id, stored_bytes(id, octet_length(source_url) + coalesce(octet_length(alt_text), 0))
    from media_jobs
) counted
join brands b on b.id = counted.brand_id
where counted.bytes > 0
group by b.workspace_id
on conflict (workspace_id) do update set texts = storage_usage.texts + excluded.texts;
