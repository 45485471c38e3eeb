//! When Crier itself held back the jobs of a lane: a platform asked for a pause, or more was due at once than the lane takes.
//! A post that waited for that is not late by it.
//!
//! A pause is known to its end beforehand, whatever runs meanwhile. A full lane is known by the jobs that leave it: each that
//! wakes another makes the time longer. Where none did so for longer than any job takes, nothing ran, and a new time begins:
//! what waited in between is late.
//!
//! Only the lanes of accounts have such times, as only posts can be too late.

use chrono::{DateTime, TimeDelta, Utc};

use super::super::db::{execute, run};
use super::super::{Result, Tx};
use crate::domain::job::Claimed;

/// Longer than a job of an account takes, and than the scheduler needs to see that a pause is over.
const MAX_GAP: TimeDelta = TimeDelta::minutes(15);
/// How long these times are kept: longer than any post waits.
const KEPT: TimeDelta = TimeDelta::days(30);

/// The lane is held until then, which may be now.
pub(super) async fn held_until(tx: &mut Tx, lane: &str, until: DateTime<Utc>) -> Result<()> {
    const LONGER: &str = "UPDATE lane_holds
        SET held_until = CASE WHEN held_until > $2 THEN held_until ELSE $2 END
        WHERE lane = $1 AND held_until >= $3";
    const NEW: &str = "INSERT INTO lane_holds (lane, held_since, held_until)
        VALUES ($1, $2, $3)
        ON CONFLICT DO NOTHING";
    if !lane.starts_with("account:") {
        return Ok(());
    }
    let now = tx.now;
    if execute!(tx, LONGER, lane, until, now - MAX_GAP)? == 0 {
        execute!(tx, NEW, lane, now, until)?;
    }
    Ok(())
}

/// How late a job is, without the time for which its lane was held.
pub async fn lateness(tx: &mut Tx, job: &Claimed) -> Result<TimeDelta> {
    const SQL: &str = "SELECT held_since, held_until
        FROM lane_holds
        WHERE lane = $1 AND held_until > $2
        ORDER BY held_since";
    let (now, run_at) = (tx.now, job.run_at);
    let Some(lane) = &job.lane else { return Ok(now - run_at) };
    let held: Vec<(DateTime<Utc>, DateTime<Utc>)> =
        run!(tx, c => sqlx::query_as(SQL).bind(lane).bind(run_at).fetch_all(c))?;
    // Two workers that are told to wait in the same moment begin a time each: no moment counts twice.
    let (mut late, mut seen) = (TimeDelta::zero(), run_at);
    for (since, until) in held {
        late += (since.min(now) - seen).max(TimeDelta::zero());
        seen = seen.max(until.min(now));
    }
    Ok(late + (now - seen))
}

/// Deletes what is long over, at most `limit`; gives how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    const SQL: &str = "DELETE FROM lane_holds
        WHERE (lane, held_since) IN (
            SELECT lane, held_since FROM lane_holds WHERE held_until < $1 ORDER BY held_until LIMIT (SELECT $2)
        )";
    let before = tx.now - KEPT;
    Ok(execute!(tx, SQL, before, limit)?)
}
