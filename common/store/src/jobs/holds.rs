//! Periods in which Crier itself held back the jobs of a lane: a platform requested a pause, or more jobs were due at
//! once than the lane has places. A post that waited for this does not count as late.
//!
//! The end of a pause is known in advance. The jobs that leave a full lane detect it: each one that wakes another job
//! extends the period. If that has not happened for longer than any job takes, nothing ran, and a new period begins.
//! Jobs that waited in between are late.
//!
//! Only the lanes of accounts have these periods, since only posts can be late.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::ClaimedJob;

use super::super::db::{execute, run};
use super::super::{Result, Tx};

/// Longer than a job of an account takes, and than the scheduler needs to notice the end of a pause.
pub(super) const MAX_GAP: TimeDelta = TimeDelta::minutes(15);
/// How long these periods are stored: longer than any post waits.
const HOLD_RETENTION: TimeDelta = TimeDelta::days(30);

/// Records that a lane is held back until `until`. Waking a lane records the same with the current time
/// (`wake_lanes.sql`).
pub(super) async fn held_until(tx: &mut Tx, lane: &str, until: DateTime<Utc>) -> Result<()> {
    const EXTEND: &str = "
        UPDATE lane_holds
        SET held_until = CASE WHEN held_until < $2 THEN $2 ELSE held_until END
        WHERE lane = $1 AND held_until >= $3";
    const BEGIN: &str = "
        INSERT INTO lane_holds (lane, held_since, held_until)
        VALUES ($1, $3, $2)
        ON CONFLICT DO NOTHING";
    if !lane.starts_with("account:") {
        return Ok(());
    }
    let now = tx.now;
    if execute!(tx, EXTEND, lane, until, now - MAX_GAP)? == 0 {
        execute!(tx, BEGIN, lane, until, now)?;
    }
    Ok(())
}

/// Returns how late a job is, without the periods in which its lane was held back.
pub async fn lateness(tx: &mut Tx, job: &ClaimedJob) -> Result<TimeDelta> {
    const SQL: &str = "
        SELECT held_since, held_until
        FROM lane_holds
        WHERE lane = $1 AND held_until > $2
        ORDER BY held_since";
    let (now, run_at) = (tx.now, job.run_at);
    let Some(lane) = &job.lane else { return Ok(now - run_at) };
    let held: Vec<(DateTime<Utc>, DateTime<Utc>)> =
        run!(tx, c => sqlx::query_as(SQL).bind(lane).bind(run_at).fetch_all(c))?;
    // Two workers that pause a lane concurrently each begin a period. An overlap counts once.
    let (mut late, mut seen) = (TimeDelta::zero(), run_at);
    for (since, until) in held {
        late += (since.min(now) - seen).max(TimeDelta::zero());
        seen = seen.max(until.min(now));
    }
    Ok(late + (now - seen))
}

/// Deletes periods that ended long ago, at most `limit`. Returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    const SQL: &str = "
        DELETE FROM lane_holds
        WHERE (lane, held_since) IN (
            SELECT lane, held_since
            FROM lane_holds
            WHERE held_until < $1
            ORDER BY held_until
            LIMIT (SELECT $2)
        )";
    let before = tx.now - HOLD_RETENTION;
    Ok(execute!(tx, SQL, before, limit)?)
}
