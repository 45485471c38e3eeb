//! What a worker does with jobs: claim, keep, settle, give back.

use chrono::{DateTime, Utc};

use super::super::db::{Conn, execute, run};
use super::super::{Result, Tx};
use super::{Rung, id_list, known, list_sql, ring_in_order};
use crate::domain::job::{Claimed, Kind, LEASE, Outcome};

/// Claims those of the ids that are ready. An id that is unknown, done, in another's hands or of a paused kind is left
/// out; one whose lane is full or paused is set waiting, and whoever leaves the lane wakes it.
pub async fn claim(tx: &mut Tx, ids: &[i64], worker: &str) -> Result<Vec<Claimed>> {
    #[derive(sqlx::FromRow)]
    struct Candidate {
        id: i64,
        kind: Kind,
        lane: Option<String>,
    }
    // On Postgres one look-up an id: `LIMIT 1` keeps it apart from the others, `state || ''` from the index of ready jobs.
    let sql = tx.spelt(
        concat!("SELECT j.id, j.kind, j.lane FROM (SELECT DISTINCT value::bigint AS id FROM json_array_elements_text($1::json)) v CROSS JOIN LATERAL (SELECT id, kind, lane, priority, run_at FROM jobs WHERE id = v.id AND state || '' = 'ready' AND NOT waiting AND ", known!(), " AND kind NOT IN (SELECT kind FROM paused_kinds) LIMIT 1 FOR UPDATE SKIP LOCKED) j ORDER BY j.priority DESC, j.run_at, j.id"),
        concat!("SELECT id, kind, lane FROM jobs WHERE id IN (SELECT value FROM json_each($1)) AND state = 'ready' AND NOT waiting AND ", known!(), " AND kind NOT IN (SELECT kind FROM paused_kinds) ORDER BY priority DESC, run_at, id"),
    );
    let list = id_list(ids);
    let candidates: Vec<Candidate> = run!(tx, c => sqlx::query_as(sql).bind(&list).fetch_all(c))?;
    let mut lanes: Vec<(String, i64)> =
        candidates.iter().filter_map(|c| Some((c.lane.clone()?, c.kind.rules().lane_cap?))).collect();
    lanes.sort();
    lanes.dedup();
    let mut room = lane_room(tx, &lanes).await?;
    let (mut take, mut park) = (Vec::new(), Vec::new());
    for c in candidates {
        let free = match (&c.lane, c.kind.rules().lane_cap) {
            (Some(lane), Some(_)) => room.iter_mut().find(|(l, _)| l == lane).map(|(_, free)| free),
            _ => None,
        };
        match free {
            Some(free) if *free <= 0 => park.push(c.id),
            Some(free) => {
                *free -= 1;
                take.push(c.id);
            }
            None => take.push(c.id),
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
        "UPDATE jobs SET state = 'running', attempt = attempt + 1, fence = fence + 1, lease_until = $2, worker = $3 WHERE id",
        "RETURNING id, kind, subject_id, lane, attempt, max_attempts, crashes, fence, run_at, trace"
    );
    let (list, until) = (id_list(&take), tx.now + LEASE);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(&list).bind(until).bind(worker).fetch_all(c))?)
}

/// How many more jobs each lane takes. Holds the lanes' locks until the end of the transaction, so that two workers
/// cannot both fill the last place (on SQLite there is one writer anyway).
async fn lane_room(tx: &mut Tx, lanes: &[(String, i64)]) -> Result<Vec<(String, i64)>> {
    let mut out = Vec::with_capacity(lanes.len());
    for (lane, cap) in lanes {
        lock_lane(tx, lane).await?;
        const SQL: &str = "SELECT (SELECT count(*) FROM jobs WHERE state = 'running' AND lane = $1), (SELECT count(*) FROM paused_lanes WHERE lane = $1 AND paused_until > $2)";
        let now = tx.now;
        let (running, paused): (i64, i64) = run!(tx, c => sqlx::query_as(SQL).bind(lane).bind(now).fetch_one(c))?;
        out.push((lane.clone(), if paused > 0 { 0 } else { cap - running }));
    }
    Ok(out)
}

async fn lock_lane(tx: &mut Tx, lane: &str) -> Result<()> {
    if tx.is_postgres() {
        execute!(tx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", lane)?;
    }
    Ok(())
}

/// Renews the leases of the jobs that this worker holds. Independent of load: one statement for all of them.
pub async fn heartbeat(tx: &mut Tx, ids: &[i64], worker: &str) -> Result<u64> {
    // A row in a settle's or a rescue's hands is passed over: to wait for it while holding others could end in a deadlock.
    let sql = tx.spelt(
        "WITH held AS MATERIALIZED (SELECT j.id FROM (SELECT DISTINCT value::bigint AS id FROM json_array_elements_text($1::json)) v CROSS JOIN LATERAL (SELECT id FROM jobs WHERE id = v.id AND worker = $3 AND state || '' = 'running' LIMIT 1 FOR UPDATE SKIP LOCKED) j) UPDATE jobs SET lease_until = $2 WHERE id IN (SELECT id FROM held WHERE id = id + 0)",
        "UPDATE jobs SET lease_until = $2 WHERE id IN (SELECT value FROM json_each($1)) AND worker = $3 AND state = 'running'",
    );
    let (list, until) = (id_list(ids), tx.now + LEASE);
    Ok(execute!(tx, sql, &list, until, worker)?)
}

/// Whether the job is still ours; holds its row until the end of the transaction.
pub async fn still_held(tx: &mut Tx, job: &Claimed) -> Result<bool> {
    const SQL: &str = "UPDATE jobs SET fence = fence WHERE id = $1 AND fence = $2 AND state = 'running'";
    Ok(execute!(tx, SQL, job.id, job.fence)? > 0)
}

/// Ends a run, in the transaction that writes its result. `false` where the lease was lost: roll back, nothing of this
/// run counts.
pub async fn settle(tx: &mut Tx, job: &Claimed, outcome: &Outcome) -> Result<bool> {
    const END: &str = "UPDATE jobs SET state = $3, last_error = $4, finished_at = $5, lease_until = NULL WHERE id = $1 AND fence = $2 AND state = 'running'";
    const AGAIN: &str = "UPDATE jobs SET state = 'scheduled', run_at = $3, last_error = $4, lease_until = NULL WHERE id = $1 AND fence = $2 AND state = 'running'";
    let now = tx.now;
    let held = match outcome {
        Outcome::Done => execute!(tx, END, job.id, job.fence, "done", None::<String>, now)?,
        Outcome::Abort(why) => execute!(tx, END, job.id, job.fence, "dead", why, now)?,
        Outcome::Cancelled(why) => execute!(tx, END, job.id, job.fence, "cancelled", why, now)?,
        Outcome::RetryAt(at, why) => execute!(tx, AGAIN, job.id, job.fence, *at, why)?,
    };
    if held == 0 {
        return Ok(false);
    }
    if let Some(lane) = &job.lane {
        tx.leave_lane(lane);
    }
    Ok(true)
}

/// Gives a job back that was not begun, without using up an attempt (drain).
pub async fn release(tx: &mut Tx, job: &Claimed) -> Result<()> {
    const SQL: &str = "UPDATE jobs SET state = 'ready', attempt = attempt - 1, lease_until = NULL, dispatched_at = $3 WHERE id = $1 AND fence = $2 AND state = 'running'";
    let long_ago = DateTime::<Utc>::UNIX_EPOCH;
    let held = execute!(tx, SQL, job.id, job.fence, long_ago)? > 0;
    if let (true, Some(lane)) = (held, &job.lane) {
        tx.leave_lane(lane);
    }
    Ok(())
}

/// Wakes as many jobs as left each lane: last thing in a transaction, and in one order. Whoever holds a lane's lock thus
/// waits for no row, and for no lane that comes before, so that two transactions never stand in each other's way.
pub(in crate::store) async fn wake_lanes(tx: &mut Tx, mut left: Vec<String>) -> Result<()> {
    left.sort();
    for same in left.chunk_by(|a, b| a == b) {
        wake_lane(tx, &same[0], i64::try_from(same.len()).unwrap_or(i64::MAX)).await?;
    }
    Ok(())
}

/// Wakes up to `n` jobs that wait for a lane, unless it is paused.
pub(super) async fn wake_lane(tx: &mut Tx, lane: &str, n: i64) -> Result<()> {
    lock_lane(tx, lane).await?;
    let sql = tx.spelt(
        concat!("WITH found AS MATERIALIZED (SELECT id FROM jobs WHERE lane = $1 AND state = 'ready' AND waiting AND ", known!(), " AND NOT EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = $1 AND p.paused_until > $3) ORDER BY run_at, id LIMIT (SELECT $2) FOR UPDATE SKIP LOCKED) UPDATE jobs SET waiting = FALSE, dispatched_at = $3 WHERE id IN (SELECT id FROM found WHERE id = id + 0) RETURNING kind, id, priority, run_at"),
        concat!("UPDATE jobs SET waiting = FALSE, dispatched_at = $3 WHERE id IN (SELECT id FROM jobs WHERE lane = $1 AND state = 'ready' AND waiting AND ", known!(), " AND NOT EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = $1 AND p.paused_until > $3) ORDER BY run_at, id LIMIT $2) RETURNING kind, id, priority, run_at"),
    );
    let now = tx.now;
    let woken: Vec<Rung> = run!(tx, c => sqlx::query_as(sql).bind(lane).bind(n).bind(now).fetch_all(c))?;
    ring_in_order(tx, woken);
    Ok(())
}

/// Pauses a lane until the time that its platform told; a longer pause stays.
pub async fn pause_lane(tx: &mut Tx, lane: &str, until: DateTime<Utc>) -> Result<()> {
    const SQL: &str = "INSERT INTO paused_lanes (lane, paused_until) VALUES ($1, $2) ON CONFLICT (lane) DO UPDATE SET paused_until = CASE WHEN paused_lanes.paused_until > excluded.paused_until THEN paused_lanes.paused_until ELSE excluded.paused_until END";
    execute!(tx, SQL, lane, until)?;
    Ok(())
}

/// Waiting jobs of a connection's view, for tests and the sweep.
pub async fn lane_is_paused(conn: &mut Conn, lane: &str, now: DateTime<Utc>) -> Result<bool> {
    const SQL: &str = "SELECT lane FROM paused_lanes WHERE lane = $1 AND paused_until > $2";
    let found: Option<String> = run!(conn, c => sqlx::query_scalar(SQL).bind(lane).bind(now).fetch_optional(c))?;
    Ok(found.is_some())
}
