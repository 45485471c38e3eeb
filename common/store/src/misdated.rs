//! Corrects times that were written by a process whose clock was ahead: the lease of a dead worker, a retry, the pause
//! of a lane, the next fetch of a feed. Once the clock is right, these would be due too late, by as much as the clock
//! was ahead.
//!
//! Each of these times has a maximum distance from the time at which it is written. A time that is further away is
//! wrong, and is set to the earliest correct time. A live worker renews its lease, so a lease that is shortened by
//! mistake, because the clocks of two machines differ, ends no run.

use std::sync::LazyLock;

use chrono::TimeDelta;
use crier_domain::job::{JobKind, LEASE};
use crier_domain::recurring_post;

use super::db::execute;
use super::{Result, Tx, media_uploads};

/// Longer than any pause between attempts, any pause of a lane, and the interval of any feed or inbox, which are at
/// most 24 hours and their jitter.
const MAX_PAUSE: TimeDelta = TimeDelta::days(2);
/// How much the clocks of two machines may differ before one needlessly notifies for the ready jobs of the other.
const MAX_SKEW: TimeDelta = TimeDelta::minutes(1);

/// A column whose times have a maximum.
struct BoundedTime {
    name: &'static str,
    table: &'static str,
    key: &'static str,
    column: &'static str,
    /// The condition of the rows, written as in the index that contains the column.
    rows: String,
    /// The maximum distance of the time from now.
    max: TimeDelta,
    /// What a wrong time is replaced with, as a distance from now.
    replacement: TimeDelta,
}

impl BoundedTime {
    fn new(name: &'static str, table: &'static str, key: &'static str, column: &'static str, rows: &str) -> Self {
        let rows = rows.to_owned();
        Self { name, table, key, column, rows, max: MAX_PAUSE, replacement: TimeDelta::zero() }
    }

    /// Returns the statement that replaces times after `$2` with `$1`. It is written like those of the queue
    /// (`jobs/sql/README.md`), so that it reads only the index of the column and the rows that it finds. `lock` locks
    /// these.
    fn sql(&self, lock: &str) -> String {
        let Self { table, key, column, rows, .. } = self;
        let same_key = if *key == "lane" { "wrong_key || ''" } else { "wrong_key + 0" };
        format!(
            "
            WITH wrong AS MATERIALIZED (
                SELECT {key} AS wrong_key
                FROM {table}
                WHERE {rows} AND {column} > $2
                ORDER BY {column}
                LIMIT (SELECT 1000)
                {lock}
            )
            UPDATE {table}
            SET {column} = $1
            WHERE {key} IN (SELECT wrong_key FROM wrong WHERE wrong_key = {same_key})"
        )
    }
}

static TIMES: LazyLock<Vec<BoundedTime>> = LazyLock::new(|| {
    let leased = "state = 'running' AND lease_until IS NOT NULL";
    let mut times = vec![
        BoundedTime {
            max: LEASE * 2,
            replacement: LEASE,
            ..BoundedTime::new("lease", "jobs", "id", "lease_until", leased)
        },
        // The time of a job without an error was chosen by a user, and may be years away.
        BoundedTime::new("retry", "jobs", "id", "run_at", "state = 'scheduled' AND last_error IS NOT NULL"),
        BoundedTime::new("lane", "paused_lanes", "lane", "paused_until", "lane IS NOT NULL"),
        BoundedTime::new("feed", "feeds", "id", "next_fetch_at", "next_fetch_at IS NOT NULL"),
        BoundedTime {
            max: recurring_post::MAX_PAUSE * 2,
            ..BoundedTime::new("recurring", "recurring_posts", "id", "due_at", "due_at IS NOT NULL")
        },
        BoundedTime::new("inbox", "inbox_syncs", "account_id", "next_sync_at", "next_sync_at IS NOT NULL"),
        BoundedTime::new("reservation", "ai_reservations", "id", "lease_until", "lease_until IS NOT NULL"),
        BoundedTime {
            max: media_uploads::LEASE * 2,
            ..BoundedTime::new("upload", "media_uploads", "id", "writer_until", "writer_until IS NOT NULL")
        },
        BoundedTime {
            max: media_uploads::LIFETIME * 2,
            replacement: media_uploads::LIFETIME,
            ..BoundedTime::new("upload_expiry", "media_uploads", "id", "expires_at", "state <> 'doomed'")
        },
    ];
    times.extend(JobKind::ALL.iter().map(|kind| {
        // The index begins with the kind.
        let rows = format!("state = 'ready' AND NOT waiting AND kind = '{kind}'");
        BoundedTime { max: MAX_SKEW, ..BoundedTime::new("notification", "jobs", "id", "dispatched_at", &rows) }
    }));
    times
});

/// Replaces times that are further away than any correct time. Returns the names and counts of the replaced times,
/// without counts of 0. Leaves rows that another transaction has locked to the next call.
pub async fn correct_future_times(tx: &mut Tx) -> Result<Vec<(&'static str, u64)>> {
    let now = tx.now;
    let mut replaced = Vec::new();
    for time in &*TIMES {
        let sql = time.sql(tx.for_engine("FOR UPDATE SKIP LOCKED", ""));
        let count = execute!(tx, sqlx::AssertSqlSafe(sql), now + time.replacement, now + time.max)?;
        if count > 0 {
            replaced.push((time.name, count));
        }
    }
    Ok(replaced)
}
