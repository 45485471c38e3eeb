-- Locks the oldest waiting jobs of lanes, as many of each lane as `counts` says, and returns them.
--
-- As a function, since its statement sees what was committed while the caller waited for the lanes' locks (0038). A caller
-- that chose by what it saw before would also lock a job that the previous holder has woken, and a claim, which skips
-- locked jobs, would leave it out.
create function lock_waiting_jobs(lanes text[], counts bigint[], kinds text[])
returns table (id bigint, lane text, kind text, run_at timestamptz, crashes integer)
language plpgsql rows 100
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return query
    select j.id, l.name, j.kind, j.run_at, j.crashes
    from unnest(lanes, counts) l (name, count)
    cross join lateral (
        select w.id, w.kind, w.run_at, w.crashes
        from jobs w
        where w.lane = l.name and w.state = 'ready' and w.waiting and coalesce(w.kind = any (kinds), false)
        order by w.run_at, w.id
        limit l.count
        for update skip locked
    ) j;
end
$$;
