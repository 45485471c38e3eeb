//! What the scheduler does with jobs. On Postgres, any number of schedulers may do it concurrently: each takes rows
//! that no other one has locked (`SKIP LOCKED`), except [`purge`], which waits for them. On SQLite there is only one.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{ClaimedJob, JobKind, JobNotification, JobState, MAX_CRASHES};

use super::super::db::{Conn, execute, run};
use super::super::{Result, Tx};
use super::wake::{FreeLane, wake};
use super::{NotifyRow, known_kinds, notify_in_order, sql_file, workspaces};

/// How long after its notification a ready job that was not claimed gets another one.
pub const RENOTIFY_AFTER: TimeDelta = TimeDelta::seconds(10);

/// Returns when the first scheduled job of each kind is due. Leaves out kinds without one.
pub async fn next_due(conn: &mut Conn) -> Result<Vec<(JobKind, DateTime<Utc>)>> {
    first_of_each(conn, sql_file!(conn, "next_due")).await
}

/// Makes due jobs of a kind ready, at most `limit`, earliest first, and notifies after the commit. Returns how many.
pub async fn promote_due(tx: &mut Tx, kind: JobKind, limit: i64) -> Result<usize> {
    let (sql, now) = (sql_file!(tx, "promote_due"), tx.now);
    let rows: Vec<NotifyRow> = run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).bind(kind).fetch_all(c))?;
    let due = rows.len();
    notify_in_order(tx, rows);
    Ok(due)
}

/// Returns when the first ready job of each kind was last notified. Leaves out paused kinds and kinds without one.
pub async fn oldest_unclaimed(conn: &mut Conn) -> Result<Vec<(JobKind, DateTime<Utc>)>> {
    first_of_each(conn, sql_file!(conn, "oldest_unclaimed")).await
}

/// Notifies again for ready jobs of a kind that were not claimed and were last notified by `before`. Their notification
/// was lost: a crash between commit and notification, or a queue that was emptied, unreachable or full. Returns how many.
pub async fn renotify_stale(tx: &mut Tx, kind: JobKind, before: DateTime<Utc>, limit: i64) -> Result<usize> {
    let (sql, now) = (sql_file!(tx, "renotify_stale"), tx.now);
    let rows: Vec<NotifyRow> =
        run!(tx, c => sqlx::query_as(sql).bind(before).bind(limit).bind(now).bind(kind).fetch_all(c))?;
    let found = rows.len();
    notify_in_order(tx, rows);
    Ok(found)
}

/// Does one index look-up per kind that this version knows.
async fn first_of_each(conn: &mut Conn, sql: &'static str) -> Result<Vec<(JobKind, DateTime<Utc>)>> {
    let firsts: Vec<(JobKind, Option<DateTime<Utc>>)> =
        run!(conn, c => sqlx::query_as(sql).bind(known_kinds()).fetch_all(c))?;
    Ok(firsts.into_iter().filter_map(|(kind, at)| Some((kind, at?))).collect())
}

/// A job whose lease expired.
#[derive(Debug)]
pub struct Rescued {
    pub job: ClaimedJob,
    /// Why the job is now dead (`poison`, `attempts`). Its subject must then be updated in the same transaction.
    pub dead: Option<&'static str>,
}

/// Returns the jobs whose lease has expired, the longest expired first.
pub async fn expired(conn: &mut Conn, now: DateTime<Utc>, limit: i64) -> Result<Vec<i64>> {
    let sql = sql_file!(conn, "expired");
    Ok(run!(conn, c => sqlx::query_scalar(sql).bind(now).bind(limit).bind(known_kinds()).fetch_all(c))?)
}

/// Rescues one job, if its lease has expired and no other transaction has locked it.
pub async fn rescue_one(tx: &mut Tx, id: i64) -> Result<Option<Rescued>> {
    let sql = sql_file!(tx, "rescue_one");
    let now = tx.now;
    let expired: Vec<ClaimedJob> =
        run!(tx, c => sqlx::query_as(sql).bind(now).bind(id).bind(known_kinds()).fetch_all(c))?;
    Ok(rescue_each(tx, expired).await?.pop())
}

/// Rescues jobs whose lease has expired, at most `limit`. The crash counts as an attempt. After [`MAX_CRASHES`]
/// crashes, the job is dead with the reason `poison`.
pub async fn rescue(tx: &mut Tx, limit: i64) -> Result<Vec<Rescued>> {
    let sql = sql_file!(tx, "rescue");
    let now = tx.now;
    let expired: Vec<ClaimedJob> =
        run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).bind(known_kinds()).fetch_all(c))?;
    rescue_each(tx, expired).await
}

async fn rescue_each(tx: &mut Tx, expired: Vec<ClaimedJob>) -> Result<Vec<Rescued>> {
    let now = tx.now;
    let mut out = Vec::with_capacity(expired.len());
    for job in expired {
        let dead = if job.crashes + 1 >= MAX_CRASHES {
            Some("poison")
        } else if job.attempt >= job.max_attempts {
            Some("attempts")
        } else {
            None
        };
        const DEAD: &str = "
            UPDATE jobs
            SET state = 'dead', crashes = crashes + 1, fence = fence + 1, lease_until = NULL,
                last_error = $2, finished_at = $3
            WHERE id = $1";
        const READY: &str = "
            UPDATE jobs
            SET state = 'ready', crashes = crashes + 1, fence = fence + 1, lease_until = NULL,
                last_error = $2, dispatched_at = $3
            WHERE id = $1";
        match dead {
            Some(reason) => execute!(tx, DEAD, job.id, reason, now)?,
            None => execute!(tx, READY, job.id, "the worker that ran it disappeared", now)?,
        };
        if dead.is_none() {
            tx.notify_later(JobNotification { kind: job.kind, id: job.id });
        }
        tx.leave_lanes(&job);
        out.push(Rescued { job, dead });
    }
    Ok(out)
}

/// The maximum number of lanes that one sweep wakes: it holds their locks.
const MAX_SWEPT_LANES: usize = 1_000;

/// A lane with waiting jobs, and data of the first of them.
#[derive(sqlx_macros::FromRow)]
struct LaneToSweep {
    lane: String,
    kind: JobKind,
    workspace_lane: Option<String>,
    running: i64,
    /// The reduced cap if the lane is narrowed.
    places: Option<i64>,
}

impl LaneToSweep {
    fn room(&self) -> i64 {
        self.places.or(self.kind.limits().lane_cap).unwrap_or(i64::MAX) - self.running
    }
}

/// Wakes jobs in lanes whose pause has ended, and in lanes with waiting jobs and free places (a woken job may be
/// cancelled before it runs). Returns how many lanes were woken.
pub async fn sweep_lanes(tx: &mut Tx) -> Result<usize> {
    let now = tx.now;
    execute!(tx, "DELETE FROM paused_lanes WHERE paused_until <= $1", now)?;
    let sql = sql_file!(tx, "lanes_to_sweep");
    let lanes: Vec<LaneToSweep> = run!(tx, c => sqlx::query_as(sql).bind(known_kinds()).fetch_all(c))?;
    let names = lanes.iter().filter_map(|lane| lane.workspace_lane.as_deref()).collect();
    let mut running = workspaces::running(tx, &names).await?;
    let mut free: Vec<(String, i64)> = lanes.iter().map(|waited| (waited.lane.clone(), 0)).collect();
    // Each lane gets one place of its workspace before any lane gets more. Lanes with the fewest running jobs come
    // first.
    for limit in [1, i64::MAX] {
        for (waited, (_, woken)) in lanes.iter().zip(&mut free) {
            let shared = waited.workspace_lane.as_ref().and_then(|name| running.get_mut(name));
            let room = shared.as_deref().map_or(i64::MAX, |running| workspaces::room(waited.kind, *running));
            let more = (waited.room() - *woken).min(room).min(limit).max(0);
            shared.into_iter().for_each(|running| *running += more);
            *woken += more;
        }
    }
    free.retain(|(_, woken)| *woken > 0);
    free.truncate(MAX_SWEPT_LANES);
    let lanes: Vec<_> = free.iter().map(|(lane, places)| FreeLane { lane, places: *places, starts: None }).collect();
    wake(tx, &lanes, "").await?;
    Ok(free.len())
}

/// Deletes jobs in a final state that ended by `before`, at most `limit`, oldest first. Returns how many.
pub async fn purge(tx: &mut Tx, state: JobState, before: DateTime<Utc>, limit: i64) -> Result<u64> {
    // Checks the state again on the row itself, because the operator may have retried the job meanwhile. Not prepared
    // persistently: a plan that was made for few jobs would read all of many.
    const SQL: &str = "
        WITH ended AS MATERIALIZED (
            SELECT id
            FROM jobs
            WHERE state = $1 AND finished_at <= $2
            ORDER BY finished_at
            LIMIT (SELECT $3)
        )
        DELETE FROM jobs
        WHERE id IN (SELECT id FROM ended WHERE id = id + 0)
            AND state = $1
        RETURNING id";
    let deleted: Vec<i64> = run!(tx, c => sqlx::query_scalar(SQL).persistent(false).bind(state).bind(before)
        .bind(limit).fetch_all(c))?;
    Ok(deleted.len() as u64)
}
