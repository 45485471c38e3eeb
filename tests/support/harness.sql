-- Part of the template of the test databases (`databases.rs`).
create schema harness;

-- The catalog before any test.
create table harness.pristine (catalog text);

-- The rows that the migrations created.
do $$
declare
    t record;
begin
    for t in
        select c.relname
        from pg_class c
        where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and c.relname <> '_sqlx_migrations'
            and pg_relation_size(c.oid) > 0
    loop
        execute format('create table harness.%1$I as table public.%1$I', t.relname);
    end loop;
end
$$;

-- Returns a text that differs after any change to tables, columns, indexes, constraints, triggers or functions: such a
-- change writes rows of the catalog, which then contain another transaction id.
create function harness.catalog() returns text language sql stable as $$
    select string_agg(rows || ':' || writers, ' ' order by catalog)
    from (
        select 1, count(*), sum(xmin::text::bigint) from pg_class where oid >= 16384
        union all
        select 2, count(*), sum(xmin::text::bigint) from pg_attribute where attrelid >= 16384
        union all
        select 3, count(*), sum(xmin::text::bigint) from pg_index where indrelid >= 16384
        union all
        select 4, count(*), sum(xmin::text::bigint) from pg_constraint where conrelid >= 16384
        union all
        select 5, count(*), coalesce(sum(xmin::text::bigint), 0) from pg_trigger where tgrelid >= 16384
        union all
        select 6, count(*), sum(xmin::text::bigint) from pg_proc where oid >= 16384
    ) c (catalog, rows, writers)
$$;

-- Restores the database to its state before the test. Returns false if this is not possible.
create function harness.empty() returns boolean language plpgsql as $$
declare
    t record;
begin
    if harness.catalog() is distinct from (select catalog from harness.pristine)
        or exists (
            select from pg_db_role_setting s
            join pg_database d on d.oid = s.setdatabase
            where d.datname = current_database()
        )
        -- Statistics change the plans of later tests.
        or exists (select from pg_statistic where starelid >= 16384)
        -- Deleted rows and their index entries remain. They slow down later tests, and count as rows read.
        or exists (
            select from pg_class
            where relnamespace = 'public'::regnamespace and relkind = 'r' and pg_relation_size(oid) > 65536
        )
    then
        return false;
    end if;
    -- Without foreign key checks, so that the order does not matter.
    set local session_replication_role = replica;
    for t in
        select c.relname
        from pg_class c
        where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and c.relname <> '_sqlx_migrations'
            and pg_relation_size(c.oid) > 0
    loop
        execute format('delete from public.%I', t.relname);
    end loop;
    for t in
        select c.relname
        from pg_class c
        where c.relnamespace = 'harness'::regnamespace and c.relkind = 'r' and c.relname <> 'pristine'
    loop
        execute format('insert into public.%1$I overriding system value select * from harness.%1$I', t.relname);
    end loop;
    perform setval(seqrelid, seqstart, false) from pg_sequence where pg_sequence_last_value(seqrelid) is not null;
    return true;
end
$$;
