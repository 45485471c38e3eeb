-- Locks lanes until the end of the transaction, and returns how many jobs run in them and in some workspaces, whether
-- they are paused, and their places if they are narrowed.
--
-- As a function, since each of its statements sees what was committed before it, so the previous holders' claims too; a
-- statement that took the locks itself would count with what it saw before it waited for them. So a claim is one
-- statement, and no lane is locked while the database waits for its client.
--
-- Planning its statements for each call would take ten times as long as running them; the plan that is kept must serve
-- large tables, even if it was made on small ones.
create function lock_lanes(lanes text[], workspaces text[], at timestamptz)
returns table (lane text, running bigint, paused boolean, places bigint)
language plpgsql rows 100
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    -- The order of the bytes in all transactions prevents deadlocks. Postgres does not flatten a subquery with its own
    -- `order by`, so the locks are taken in that order.
    perform pg_advisory_xact_lock(hashtextextended(sorted.name, 0))
    from (select distinct l.name collate "C" as name from unnest(lanes) l (name) order by 1) sorted;
    return query
    select l.name, (select count(*) from jobs j where j.lane = l.name and j.state = 'running'),
        exists (select 1 from paused_lanes p where p.lane = l.name and p.paused_until > at offset 0),
        (select n.places from narrow_lanes n where n.lane = l.name)
    from (select distinct u.name from unnest(lanes) u (name)) l
    union all
    select w.name, (select count(*) from jobs j where j.workspace_lane = w.name and j.state = 'running'), false, null
    from (select distinct u.name from unnest(workspaces) u (name)) w;
end
$$;
