//! What a worker does with jobs: claim, heartbeat, settle, release.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use serde_json::json;

use super::super::db::{Conn, Engine, execute, run};
use super::super::{Lanes, Result, Store, Tx, Workspace};
use super::{NotifyRow, holds, id_list, known_kinds, list_sql, notify_in_order, workspaces};
use crate::domain::job::{Claimed, JobKind, LEASE, Outcome};
use crate::domain::untrusted::{self, MAX_MESSAGE};

/// Claims those of the ids that are ready. Skips an id that is unknown, ended, claimed by another worker or of a paused
/// kind. A job whose lane is full or paused, or whose workspace's share is full, is set waiting; the next job to leave
/// wakes it.
pub async fn claim(tx: &mut Tx, ids: &[i64], worker: &str) -> Result<Vec<Claimed>> {
    #[derive(sqlx::FromRow)]
    struct Candidate {
        id: i64,
        kind: JobKind,
        lane: Option<String>,
        workspace_lane: Option<String>,
    }
    impl Candidate {
        /// Returns the lane in which it needs a place, and the lane's cap.
        fn capped(&self) -> Option<(&str, i64)> {
            Some((self.lane.as_deref()?, self.kind.limits().lane_cap?))
        }

        fn capped_workspace(&self) -> Option<(&str, i64)> {
            Some((self.workspace_lane.as_deref()?, self.kind.limits().workspace_cap?))
        }
    }
    // On Postgres one look-up per id: `LIMIT 1` keeps the look-ups apart, `state || ''` avoids the index of ready jobs.
    let sql = tx.for_engine(
        concat!(
            "
            SELECT j.id, j.kind, j.lane, j.workspace_lane
            FROM (
                SELECT DISTINCT value::bigint AS id
                FROM json_array_elements_text($1::json)
            ) v
            CROSS JOIN LATERAL (
                SELECT id, kind, lane, workspace_lane, priority, run_at
                FROM jobs
                WHERE id = v.id
                    AND state || '' = 'ready'
                    AND NOT waiting
                    AND ",
            known_kinds!(),
            "
                    AND kind NOT IN (SELECT kind FROM paused_kinds)
                LIMIT 1
                FOR UPDATE SKIP LOCKED
            ) j
            ORDER BY j.priority DESC, j.run_at, j.id"
        ),
        concat!(
            "
            SELECT id, kind, lane, workspace_lane
            FROM jobs
            WHERE id IN (SELECT value FROM json_each($1))
                AND state = 'ready'
                AND NOT waiting
                AND ",
            known_kinds!(),
            "
                AND kind NOT IN (SELECT kind FROM paused_kinds)
            ORDER BY priority DESC, run_at, id"
        ),
    );
    let list = id_list(ids);
    let candidates: Vec<Candidate> = run!(tx, c => sqlx::query_as(sql).bind(&list).fetch_all(c))?;
    let mut lanes = lanes(tx, candidates.iter().filter_map(Candidate::capped).map(|(lane, _)| lane)).await?;
    let workspaces = candidates.iter().filter_map(Candidate::capped_workspace);
    let running = workspaces::running(tx, &workspaces.map(|(lane, _)| lane).collect()).await?;
    lanes.extend(running.into_iter().map(|(lane, running)| (lane.clone(), LaneLoad::unpaused(lane, running))));
    let (mut take, mut park) = (Vec::new(), Vec::new());
    for candidate in &candidates {
        let (own, shared) = (candidate.capped(), candidate.capped_workspace());
        let full = [own, shared].into_iter().flatten().find(|(lane, cap)| lanes[*lane].room(*cap) <= 0);
        match full {
            Some((lane, _)) if shared.is_some_and(|(workspace, _)| workspace == lane) => {
                tx.found_workspace_full(lane, candidate.kind);
                park.push(candidate.id);
            }
            Some((lane, cap)) => {
                tx.found_full(lane, cap);
                park.push(candidate.id);
            }
            None => {
                for (lane, _) in [own, shared].into_iter().flatten() {
                    lanes.entry(lane.to_owned()).and_modify(|lane| lane.running += 1);
                }
                take.push(candidate.id);
            }
        }
    }
    if !park.is_empty() {
        let sql = list_sql!(tx, "UPDATE jobs SET waiting = TRUE WHERE id", "");
        execute!(tx, sql, id_list(&park))?;
    }
    if take.is_empty() {
        return Ok(Vec::new());
    }
    let sql = list_sql!(
        tx,
        "
            UPDATE jobs
            SET state = 'running', attempt = attempt + 1, fence = fence + 1, lease_until = $2, worker = $3
            WHERE id",
        "RETURNING id, kind, subject_id, lane, workspace_lane, attempt, max_attempts, crashes, fence, worker, run_at, trace"
    );
    let (list, until) = (id_list(&take), tx.now + LEASE);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(&list).bind(until).bind(worker).fetch_all(c))?)
}

/// The load of a lane.
#[derive(sqlx::FromRow)]
struct LaneLoad {
    lane: String,
    running: i64,
    paused: bool,
    /// The reduced cap while the lane is narrowed.
    places: Option<i64>,
}

impl LaneLoad {
    fn unpaused(lane: String, running: i64) -> Self {
        Self { lane, running, paused: false, places: None }
    }

    /// Returns how many places are free, given the `cap` of its kind; 0 while the lane is paused.
    fn room(&self, cap: i64) -> i64 {
        if self.paused { 0 } else { self.places.unwrap_or(cap) - self.running }
    }
}

/// Returns the load of the lanes. Holds their locks until the end of the transaction, so that two workers cannot both
/// take the last place (on SQLite there is one writer anyway).
async fn lanes<'a>(tx: &mut Tx, lanes: impl Iterator<Item = &'a str>) -> Result<HashMap<String, LaneLoad>> {
    let lanes: BTreeSet<&str> = lanes.collect();
    if lanes.is_empty() {
        return Ok(HashMap::new());
    }
    let sorted = json!(lanes).to_string();
    lock_lanes(tx, &sorted).await?;
    let now = tx.now;
    let lanes = load_lanes(tx, &sorted, now).await?;
    Ok(lanes.into_iter().map(|lane| (lane.lane.clone(), lane)).collect())
}

async fn load_lanes(conn: &mut Conn, lanes: &str, now: DateTime<Utc>) -> Result<Vec<LaneLoad>> {
    let sql = conn.for_engine(
        "
            SELECT value AS lane,
                (SELECT count(*) FROM jobs WHERE state = 'running' AND lane = value) AS running,
                value IN (SELECT lane FROM paused_lanes WHERE paused_until > $2) AS paused,
                (SELECT places FROM narrow_lanes WHERE lane = value) AS places
            FROM json_array_elements_text($1::json)",
        "
            SELECT value AS lane,
                (SELECT count(*) FROM jobs WHERE state = 'running' AND lane = value) AS running,
                value IN (SELECT lane FROM paused_lanes WHERE paused_until > $2) AS paused,
                (SELECT places FROM narrow_lanes WHERE lane = value) AS places
            FROM json_each($1)",
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(lanes).bind(now).fetch_all(c))?)
}

/// Locks lanes until the end of the transaction, in the given order: a sorted JSON array.
pub(super) async fn lock_lanes(tx: &mut Tx, sorted: &str) -> Result<()> {
    // Postgres does not flatten a subquery with its own `ORDER BY`, so the locks are taken in that order.
    const SQL: &str = "
        SELECT count(pg_advisory_xact_lock(hashtextextended(lane, 0)))
        FROM (
            SELECT value AS lane
            FROM json_array_elements_text($1::json) WITH ORDINALITY AS t (value, n)
            ORDER BY n
        ) lanes";
    if let Engine::Pg(c) = tx.engine() {
        sqlx::query(SQL).bind(sorted).execute(c).await?;
    }
    Ok(())
}

/// Renews the leases of the jobs that this worker holds, in one statement however many there are.
pub async fn heartbeat(tx: &mut Tx, ids: &[i64], worker: &str) -> Result<u64> {
    // Skips a row that a settle or a rescue has locked: waiting for it while holding others could deadlock.
    let sql = tx.for_engine(
        "
            WITH held AS MATERIALIZED (
                SELECT j.id
                FROM (
                    SELECT DISTINCT value::bigint AS id
                    FROM json_array_elements_text($1::json)
                ) v
                CROSS JOIN LATERAL (
                    SELECT id
                    FROM jobs
                    WHERE id = v.id
                        AND worker = $3
                        AND state || '' = 'running'
                    LIMIT 1
                    FOR UPDATE SKIP LOCKED
                ) j
            )
            UPDATE jobs
            SET lease_until = $2
            WHERE id IN (SELECT id FROM held WHERE id = id + 0)",
        "
            UPDATE jobs
            SET lease_until = $2
            WHERE id IN (SELECT value FROM json_each($1))
                AND worker = $3
                AND state = 'running'",
    );
    let (list, until) = (id_list(ids), tx.now + LEASE);
    Ok(execute!(tx, sql, &list, until, worker)?)
}

/// Whether this worker still holds the job; locks its row until the end of the transaction.
pub async fn still_held(tx: &mut Tx, job: &Claimed) -> Result<bool> {
    let sql = tx.for_engine(
        "
            SELECT id
            FROM jobs
            WHERE id = $1
                AND fence = $2
                AND worker = $3
                AND state || '' = 'running'
            FOR UPDATE",
        "
            SELECT id
            FROM jobs
            WHERE id = $1
                AND fence = $2
                AND worker = $3
                AND state = 'running'",
    );
    let (id, fence, worker) = (job.id, job.fence, &job.worker);
    let held: Option<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(id).bind(fence).bind(worker).fetch_optional(c))?;
    Ok(held.is_some())
}

/// Settles runs, in the transaction that writes their results. Returns `false` if a lease was lost: roll back, all of
/// these results are discarded.
pub async fn settle(tx: &mut Tx, ends: &[(&Claimed, Outcome)]) -> Result<bool> {
    const END: &str = "
        UPDATE jobs
        SET state = $3, last_error = $4, finished_at = $5, lease_until = NULL
        WHERE id = $1
            AND fence = $2
            AND worker = $6
            AND state = 'running'";
    const AGAIN: &str = "
        UPDATE jobs
        SET state = 'scheduled', run_at = $3, last_error = $4, lease_until = NULL
        WHERE id = $1
            AND fence = $2
            AND worker = $5
            AND state = 'running'";
    let now = tx.now;
    let mut done = Vec::with_capacity(ends.len());
    for (job, outcome) in ends {
        let updated = match outcome {
            // By far the most common outcome: settled together, in one statement.
            Outcome::Done => {
                done.push((job.id, job.fence, &job.worker));
                1
            }
            Outcome::Abort(why) => execute!(tx, END, job.id, job.fence, "dead", stored_reason(why), now, &job.worker)?,
            Outcome::Cancelled(why) => {
                execute!(tx, END, job.id, job.fence, "cancelled", stored_reason(why), now, &job.worker)?
            }
            Outcome::RetryAt(at, why) => execute!(tx, AGAIN, job.id, job.fence, *at, stored_reason(why), &job.worker)?,
        };
        if updated == 0 {
            return Ok(false);
        }
        tx.leave_lanes(job);
    }
    settle_done(tx, &done).await
}

/// Makes the reason for the end of a run fit for storage.
fn stored_reason(reason: &str) -> String {
    untrusted::line(reason, MAX_MESSAGE)
}

/// Takes ids with their fences and workers; returns `false` if one of the jobs is no longer held.
async fn settle_done(tx: &mut Tx, done: &[(i64, i64, &String)]) -> Result<bool> {
    if done.is_empty() {
        return Ok(true);
    }
    let sql = tx.for_engine(
        "
            UPDATE jobs
            SET state = 'done', last_error = NULL, finished_at = $2, lease_until = NULL
            FROM (
                SELECT (value ->> 0)::bigint AS id, (value ->> 1)::bigint AS fence, value ->> 2 AS worker
                FROM json_array_elements($1::json)
                WHERE value ->> 0 = (value ->> 0) || ''
            ) held
            WHERE jobs.id = held.id
                AND jobs.fence = held.fence
                AND jobs.worker = held.worker
                AND jobs.state || '' = 'running'",
        "
            UPDATE jobs
            SET state = 'done', last_error = NULL, finished_at = $2, lease_until = NULL
            FROM (
                SELECT value ->> 0 AS id, value ->> 1 AS fence, value ->> 2 AS worker
                FROM json_each($1)
            ) held
            WHERE jobs.id = held.id
                AND jobs.fence = held.fence
                AND jobs.worker = held.worker
                AND jobs.state || '' = 'running'",
    );
    let (held, now) = (json!(done).to_string(), tx.now);
    Ok(execute!(tx, sql, held, now)? == done.len() as u64)
}

/// Returns a job to the queue without using up an attempt (drain); `false`: the lease was lost.
pub async fn release(tx: &mut Tx, job: &Claimed) -> Result<bool> {
    const SQL: &str = "
        UPDATE jobs
        SET state = 'ready', attempt = attempt - 1, lease_until = NULL, dispatched_at = $3
        WHERE id = $1
            AND fence = $2
            AND worker = $4
            AND state = 'running'";
    let long_ago = DateTime::<Utc>::UNIX_EPOCH;
    let held = execute!(tx, SQL, job.id, job.fence, long_ago, &job.worker)? > 0;
    if held {
        tx.leave_lanes(job);
    }
    Ok(held)
}

/// Wakes as many jobs as places were freed in each lane, after the commit that freed them: a lane's lock is never held
/// while waiting for the disk. A claim that found a lane full checks it again, also after its commit: of two concurrent
/// ones, at least one sees the other's change. If the process dies in between, the sweep wakes the jobs.
pub(in crate::store) async fn wake_lanes(store: &Store, lanes: Lanes) -> Result<()> {
    let Lanes { mut free, full, workspaces } = lanes;
    if free.is_empty() && full.is_empty() && workspaces.is_empty() {
        // The common case.
        return Ok(());
    }
    let mut conn = store.read().await?;
    if !full.is_empty() {
        for lane in load_lanes(&mut conn, &names(&full), store.now()).await? {
            let room = full.get(&lane.lane).map_or(0, |cap| lane.room(*cap));
            if room > 0 {
                free.insert(lane.lane, room);
            }
        }
    }
    let waited_for = waited_for(&mut conn, &free, &workspaces).await?;
    free.retain(|lane, _| waited_for.contains_key(lane));
    for (name, workspace) in &workspaces {
        if let Some(running) = waited_for.get(name) {
            workspaces::share_out(&mut conn, (name, workspace, *running), store.now(), &mut free).await?;
        }
    }
    drop(conn);
    if free.is_empty() {
        return Ok(());
    }
    let mut tx = store.begin_async_commit().await?;
    lock_lanes(&mut tx, &names(&free)).await?;
    for (lane, places) in &free {
        wake_lane(&mut tx, lane, *places).await?;
    }
    tx.commit_alone().await
}

/// Returns the lanes' names, sorted.
fn names(lanes: &BTreeMap<String, i64>) -> String {
    json!(lanes.keys().collect::<Vec<_>>()).to_string()
}

/// Returns those lanes and workspaces that jobs wait for (usually empty); a workspace with its running jobs.
async fn waited_for(
    conn: &mut Conn,
    lanes: &BTreeMap<String, i64>,
    workspaces: &BTreeMap<String, Workspace>,
) -> Result<HashMap<String, i64>> {
    if lanes.is_empty() && workspaces.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = conn.for_engine(
        r"
        SELECT value, CAST(0 AS bigint)
        FROM json_array_elements_text($1::json)
        WHERE EXISTS (SELECT 1 FROM jobs WHERE lane = value AND state = 'ready' AND waiting)
        UNION ALL
        SELECT value, (SELECT count(*) FROM jobs WHERE workspace_lane = value AND state = 'running')
        FROM json_array_elements_text($2::json)
        WHERE EXISTS (SELECT 1 FROM jobs WHERE workspace_lane = value AND state = 'ready' AND waiting)",
        r"
        SELECT value, 0
        FROM json_each($1)
        WHERE EXISTS (SELECT 1 FROM jobs WHERE lane = value AND state = 'ready' AND waiting)
        UNION ALL
        SELECT value, (SELECT count(*) FROM jobs WHERE workspace_lane = value AND state = 'running')
        FROM json_each($2)
        WHERE EXISTS (SELECT 1 FROM jobs WHERE workspace_lane = value AND state = 'ready' AND waiting)",
    );
    let workspaces = json!(workspaces.keys().collect::<Vec<_>>()).to_string();
    let found: Vec<(String, i64)> =
        run!(conn, c => sqlx::query_as(sql).bind(names(lanes)).bind(&workspaces).fetch_all(c))?;
    Ok(found.into_iter().collect())
}

/// Wakes up to `n` jobs that wait for a lane, unless it is paused. The caller holds the lane's lock.
pub(super) async fn wake_lane(tx: &mut Tx, lane: &str, n: i64) -> Result<()> {
    let sql = tx.for_engine(
        concat!(
            "
            WITH found AS MATERIALIZED (
                SELECT id
                FROM jobs
                WHERE lane = $1
                    AND state = 'ready'
                    AND waiting
                    AND ",
            known_kinds!(),
            "
                    AND NOT EXISTS (
                        SELECT 1
                        FROM paused_lanes p
                        WHERE p.lane = $1 AND p.paused_until > $3
                    )
                ORDER BY run_at, id
                LIMIT (SELECT $2)
                FOR UPDATE SKIP LOCKED
            )
            UPDATE jobs
            SET waiting = FALSE, dispatched_at = $3
            WHERE id IN (SELECT id FROM found WHERE id = id + 0)
            RETURNING kind, id, priority, run_at"
        ),
        concat!(
            "
            UPDATE jobs
            SET waiting = FALSE, dispatched_at = $3
            WHERE id IN (
                SELECT id
                FROM jobs
                WHERE lane = $1
                    AND state = 'ready'
                    AND waiting
                    AND ",
            known_kinds!(),
            "
                    AND NOT EXISTS (
                        SELECT 1
                        FROM paused_lanes p
                        WHERE p.lane = $1 AND p.paused_until > $3
                    )
                ORDER BY run_at, id
                LIMIT $2
            )
            RETURNING kind, id, priority, run_at"
        ),
    );
    let now = tx.now;
    let woken: Vec<NotifyRow> = run!(tx, c => sqlx::query_as(sql).bind(lane).bind(n).bind(now).fetch_all(c))?;
    if !woken.is_empty() {
        holds::held_until(tx, lane, now).await?;
    }
    notify_in_order(tx, woken);
    Ok(())
}

/// Pauses a lane until the time that its platform named; a longer pause stays.
pub async fn pause_lane(tx: &mut Tx, lane: &str, until: DateTime<Utc>) -> Result<()> {
    const SQL: &str = "
        INSERT INTO paused_lanes (lane, paused_until)
        VALUES ($1, $2)
        ON CONFLICT (lane)
        DO UPDATE SET paused_until = CASE WHEN paused_lanes.paused_until > excluded.paused_until THEN
            paused_lanes.paused_until ELSE excluded.paused_until END";
    execute!(tx, SQL, lane, until)?;
    holds::held_until(tx, lane, until).await
}

/// Reduces a lane's places below the cap of its kind, until it is widened. Running jobs continue.
pub async fn narrow_lane(tx: &mut Tx, lane: &str, places: i64) -> Result<()> {
    const SQL: &str = "
        INSERT INTO narrow_lanes (lane, places)
        VALUES ($1, $2)
        ON CONFLICT (lane)
        DO UPDATE SET places = excluded.places";
    execute!(tx, SQL, lane, places)?;
    Ok(())
}

/// Removes the reduction and the pause of a lane of this kind, and wakes jobs that wait for it.
pub async fn widen_lane(tx: &mut Tx, kind: JobKind, lane: &str) -> Result<()> {
    execute!(tx, "DELETE FROM narrow_lanes WHERE lane = $1", lane)?;
    execute!(tx, "DELETE FROM paused_lanes WHERE lane = $1", lane)?;
    tx.free_places(lane, kind.limits().lane_cap.unwrap_or(i64::MAX));
    Ok(())
}

/// Whether a lane is paused.
pub async fn lane_is_paused(conn: &mut Conn, lane: &str, now: DateTime<Utc>) -> Result<bool> {
    const SQL: &str = "SELECT lane FROM paused_lanes WHERE lane = $1 AND paused_until > $2";
    let found: Option<String> = run!(conn, c => sqlx::query_scalar(SQL).bind(lane).bind(now).fetch_optional(c))?;
    Ok(found.is_some())
}
