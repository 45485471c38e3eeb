//! What a worker does with jobs: claim, heartbeat, settle, release.

use chrono::{DateTime, Utc};
use crier_domain::job::{ClaimedJob, LEASE, Outcome};
use crier_domain::untrusted::{self, MAX_MESSAGE};
use serde_json::json;

use super::super::db::{execute, run};
use super::super::sql::locking_sql;
use super::super::{Result, Tx};
use super::{id_list, kinds_with_caps, sql_file};

/// A job that was started or set waiting.
#[derive(sqlx_macros::FromRow)]
struct ClaimRow {
    #[sqlx(flatten)]
    job: ClaimedJob,
    started: bool,
    /// Whether it was set waiting because its lane was full or paused. Otherwise its workspace's share was full.
    lane_is_full: bool,
}

/// Claims ready jobs by their ids. Skips an id that is unknown, ended, claimed by another worker or of a paused kind. A
/// job whose lane is full or paused, or whose workspace's share is full, is set waiting; the next job that leaves wakes
/// it. For a transaction of [`super::super::Store::begin_single_async_commit`].
pub async fn claim(tx: &mut Tx, ids: &[i64], worker: &str) -> Result<Vec<ClaimedJob>> {
    let sql = sql_file!(tx, "claim");
    let (list, now) = (id_list(ids), tx.now);
    let rows: Vec<ClaimRow> = run!(tx, c => sqlx::query_as(sql).bind(&list).bind(kinds_with_caps()).bind(now)
        .bind(now + LEASE).bind(worker).fetch_all(c))?;
    let (started, waiting): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.started);
    for ClaimRow { job, lane_is_full, .. } in waiting {
        match (job.lane, job.workspace_lane) {
            (Some(lane), _) if lane_is_full => tx.found_full(&lane, job.kind),
            (lane, Some(workspace)) => tx.found_workspace_full(&workspace, job.kind, lane.as_deref()),
            _ => {}
        }
    }
    Ok(started.into_iter().map(|row| row.job).collect())
}

/// Renews the leases of the jobs that this worker holds, in one statement. Returns how many.
pub async fn heartbeat(tx: &mut Tx, ids: &[i64], worker: &str) -> Result<u64> {
    let sql = sql_file!(tx, "heartbeat");
    let (list, until) = (id_list(ids), tx.now + LEASE);
    Ok(execute!(tx, sql, &list, until, worker)?)
}

/// Returns whether this worker still holds the job. Locks its row until the end of the transaction.
pub async fn still_held(tx: &mut Tx, job: &ClaimedJob) -> Result<bool> {
    // `state || ''` keeps Postgres from using the index of running jobs.
    let sql = locking_sql!(
        tx,
        "
        SELECT id
        FROM jobs
        WHERE id = $1
            AND fence = $2
            AND worker = $3
            AND state || '' = 'running'
        {LOCK}",
        "FOR UPDATE"
    );
    let (id, fence, worker) = (job.id, job.fence, &job.worker);
    let held: Option<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(id).bind(fence).bind(worker).fetch_optional(c))?;
    Ok(held.is_some())
}

/// Settles runs, in the transaction that writes their results. Returns `false` if a lease was lost: roll back then,
/// which discards all of these results.
pub async fn settle(tx: &mut Tx, ends: &[(&ClaimedJob, Outcome)]) -> Result<bool> {
    const SETTLE: &str = "
        UPDATE jobs
        SET state = $3, last_error = $4, finished_at = $5, lease_until = NULL
        WHERE id = $1
            AND fence = $2
            AND worker = $6
            AND state = 'running'";
    const RETRY: &str = "
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
            // By far the most common outcome. These are settled together, in one statement.
            Outcome::Done => {
                done.push(*job);
                continue;
            }
            Outcome::Abort(why) => {
                execute!(tx, SETTLE, job.id, job.fence, "dead", stored_reason(why), now, &job.worker)?
            }
            Outcome::Cancelled(why) => {
                execute!(tx, SETTLE, job.id, job.fence, "cancelled", stored_reason(why), now, &job.worker)?
            }
            Outcome::RetryAt(at, why) => {
                let why = Some(stored_reason(why)).filter(|why| !why.is_empty());
                execute!(tx, RETRY, job.id, job.fence, *at, why, &job.worker)?
            }
        };
        if updated == 0 {
            return Ok(false);
        }
    }
    if !settle_done(tx, &done).await? {
        return Ok(false);
    }
    ends.iter().for_each(|(job, _)| tx.leave_lanes(job));
    Ok(true)
}

/// Cleans and shortens the reason for the end of a run, so that it can be stored.
fn stored_reason(reason: &str) -> String {
    untrusted::line(reason, MAX_MESSAGE)
}

/// Settles jobs that are done. Returns `false` if one of them is no longer held.
async fn settle_done(tx: &mut Tx, done: &[&ClaimedJob]) -> Result<bool> {
    if done.is_empty() {
        return Ok(true);
    }
    let (sql, now) = (sql_file!(tx, "settle_done"), tx.now);
    let held: Vec<_> = done.iter().map(|job| (job.id, job.fence, &job.worker)).collect();
    let settled = execute!(tx, sql, json!(held).to_string(), now)?;
    Ok(u64::try_from(done.len()) == Ok(settled))
}

/// Returns a job to the queue without counting the attempt (drain). Returns `false` if the lease was lost.
pub async fn release(tx: &mut Tx, job: &ClaimedJob) -> Result<bool> {
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
