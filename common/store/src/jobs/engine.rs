//! What a worker does with jobs: claim, heartbeat, settle, release.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use crier_domain::job::{Claimed, JobKind, LEASE, Outcome};
use crier_domain::untrusted::{self, MAX_MESSAGE};
use serde_json::json;

use super::super::db::{execute, run};
use super::super::{Result, Tx};
use super::lanes::{Places, load_lanes};
use super::{id_list, known_kinds, list_sql, sql_file};

/// A job that may be claimed.
#[derive(sqlx_macros::FromRow)]
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

/// Claims those of the ids that are ready. Skips an id that is unknown, ended, claimed by another worker or of a paused
/// kind. A job whose lane is full or paused, or whose workspace's share is full, is set waiting; the next job to leave
/// wakes it. For a transaction of [`super::super::Store::begin_claim`].
pub async fn claim(tx: &mut Tx, ids: &[i64], worker: &str) -> Result<Vec<Claimed>> {
    let candidates = lock_candidates(tx, ids).await?;
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    // Most often there is a place for each of them, which the statement that starts them checks.
    let all: Vec<i64> = candidates.iter().map(|candidate| candidate.id).collect();
    let lanes = Places::needed(candidates.iter().filter_map(Candidate::capped));
    let workspaces = Places::needed(candidates.iter().filter_map(Candidate::capped_workspace));
    let started = start_if_room(tx, &all, (&lanes, &workspaces), worker).await?;
    if !started.is_empty() {
        return Ok(started);
    }
    let (take, park) = choose(tx, &candidates).await?;
    if !park.is_empty() {
        let sql = list_sql!(tx, "UPDATE jobs SET waiting = TRUE WHERE id", "");
        execute!(tx, sql, id_list(&park))?;
    }
    if take.is_empty() {
        return Ok(Vec::new());
    }
    start_if_room(tx, &take, (&Places::default(), &Places::default()), worker).await
}

/// Locks the rows of those of the jobs that may be claimed, and their lanes. Returns them in the order in which they
/// should run.
async fn lock_candidates(tx: &mut Tx, ids: &[i64]) -> Result<Vec<Candidate>> {
    let sql = sql_file!(tx, "lock_candidates");
    let list = id_list(ids);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(&list).bind(known_kinds()).fetch_all(c))?)
}

/// Decides which jobs start and which wait because a lane or a share has no place for them.
async fn choose(tx: &mut Tx, candidates: &[Candidate]) -> Result<(Vec<i64>, Vec<i64>)> {
    let capped = candidates.iter().filter_map(Candidate::capped).map(|(lane, _)| lane).collect();
    let workspaces = candidates.iter().filter_map(Candidate::capped_workspace).map(|(lane, _)| lane).collect();
    let now = tx.now;
    let loads = load_lanes(tx, &capped, &workspaces, now).await?;
    let mut lanes: HashMap<_, _> = loads.into_iter().map(|lane| (lane.lane.clone(), lane)).collect();
    let (mut take, mut park) = (Vec::new(), Vec::new());
    for candidate in candidates {
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
    Ok((take, park))
}

/// Starts jobs whose rows and lanes are locked, with a lease and the next fence: all of them if their lanes and their
/// workspaces' shares have the places that are needed, else none.
async fn start_if_room(
    tx: &mut Tx,
    ids: &[i64],
    (lanes, workspaces): (&Places<'_>, &Places<'_>),
    worker: &str,
) -> Result<Vec<Claimed>> {
    let sql = sql_file!(tx, "start_if_room");
    let (list, now, until) = (id_list(ids), tx.now, tx.now + LEASE);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(&list).bind(until).bind(worker).bind(lanes.as_json())
        .bind(workspaces.as_json()).bind(now).fetch_all(c))?)
}

/// Renews the leases of the jobs that this worker holds, in one statement however many there are.
pub async fn heartbeat(tx: &mut Tx, ids: &[i64], worker: &str) -> Result<u64> {
    let sql = sql_file!(tx, "heartbeat");
    let (list, until) = (id_list(ids), tx.now + LEASE);
    Ok(execute!(tx, sql, &list, until, worker)?)
}

/// Whether this worker still holds the job; locks its row until the end of the transaction.
pub async fn still_held(tx: &mut Tx, job: &Claimed) -> Result<bool> {
    let sql = sql_file!(tx, "still_held");
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
                done.push(*job);
                continue;
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

/// Encodes held jobs as one bind, for the statements that end them.
pub(crate) fn held_list<'a>(jobs: impl Iterator<Item = &'a Claimed>) -> String {
    json!(jobs.map(|job| (job.id, job.fence, &job.worker)).collect::<Vec<_>>()).to_string()
}

/// Settles jobs that are done; returns `false` if one of them is no longer held. Where a job waits for one of their lanes,
/// or may be set waiting at this moment (`is_waited_for.sql`), the lanes are looked at again after the commit.
async fn settle_done(tx: &mut Tx, done: &[&Claimed]) -> Result<bool> {
    if done.is_empty() {
        return Ok(true);
    }
    const PG: &str = concat!(
        "WITH ended AS (",
        include_str!("sql/postgres/end_done.sql"),
        "RETURNING jobs.id) SELECT ",
        include_str!("sql/postgres/is_waited_for.sql"),
        "FROM ended"
    );
    let sql = tx.for_engine(PG, include_str!("sql/sqlite/settle_done.sql"));
    let held = held_list(done.iter().copied());
    let (lanes, workspaces) = Places::left(done.iter().copied());
    let now = tx.now;
    let waited_for: Vec<bool> = run!(tx, c => sqlx::query_scalar(sql).bind(held).bind(now).bind(lanes.as_json())
        .bind(workspaces.as_json()).fetch_all(c))?;
    if waited_for.contains(&true) {
        done.iter().for_each(|job| tx.leave_lanes(job));
    }
    Ok(waited_for.len() == done.len())
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
