//! What an operator does with jobs, by `crier jobs …`; all of it safe while workers run.

use chrono::{DateTime, Utc};

use super::super::db::{execute, run};
use super::super::{Conn, Result, Tx};
use super::known;
use crate::domain::job::{Kind, Ring, State};

/// A job as it is shown.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct JobRow {
    pub id: i64,
    pub kind: Kind,
    pub subject_id: i64,
    pub lane: Option<String>,
    pub state: State,
    pub waiting: bool,
    pub priority: i32,
    pub run_at: DateTime<Utc>,
    pub attempt: i32,
    pub max_attempts: i32,
    pub crashes: i32,
    pub lease_until: Option<DateTime<Utc>>,
    pub trace: Option<String>,
    pub last_error: Option<String>,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// What narrows a list; `None` does not.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub kind: Option<Kind>,
    pub state: Option<State>,
    pub lane: Option<String>,
    /// Made before this time.
    pub created_before: Option<DateTime<Utc>>,
}

const COLUMNS: &str = "id, kind, subject_id, lane, state, waiting, priority, run_at, attempt, max_attempts, crashes, lease_until, trace, last_error, created_at, finished_at";

/// Newest first; those whose kind this version knows.
pub async fn list(conn: &mut Conn, filter: &Filter, limit: i64) -> Result<Vec<JobRow>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM jobs WHERE {} AND ($1 = '' OR kind = $1) AND ($2 = '' OR state = $2) AND ($3 = '' OR lane = $3) AND created_at <= $4 ORDER BY id DESC LIMIT $5",
        known!()
    );
    let (kind, state) = (filter.kind.map_or("", Kind::as_str), filter.state.map_or("", State::as_str));
    let lane = filter.lane.as_deref().unwrap_or("");
    let before = filter.created_before.unwrap_or(DateTime::<Utc>::from_timestamp_nanos(i64::MAX));
    Ok(
        run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(kind).bind(state).bind(lane).bind(before).bind(limit).fetch_all(c))?,
    )
}

pub async fn show(conn: &mut Conn, id: i64) -> Result<Option<JobRow>> {
    let sql = format!("SELECT {COLUMNS} FROM jobs WHERE id = $1");
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id).fetch_optional(c))?)
}

/// Makes a dead or cancelled job ready again, with its attempts whole; `None` where it is in no such state, or its subject
/// has another job by now. What it acts on must be told in the same transaction ([`crate::subjects`]).
pub async fn retry(tx: &mut Tx, id: i64) -> Result<Option<(Kind, i64)>> {
    const SQL: &str = "UPDATE jobs SET state = 'ready', attempt = 0, crashes = 0, run_at = $2, dispatched_at = $2, finished_at = NULL, last_error = NULL, waiting = FALSE WHERE id = $1 AND state IN ('dead', 'cancelled') AND NOT EXISTS (SELECT 1 FROM jobs o WHERE o.kind = jobs.kind AND o.subject_id = jobs.subject_id AND o.state IN ('scheduled', 'ready', 'running')) RETURNING kind, subject_id";
    let now = tx.now;
    let revived: Option<(Kind, i64)> = run!(tx, c => sqlx::query_as(SQL).bind(id).bind(now).fetch_optional(c))?;
    if let Some((kind, _)) = revived {
        tx.ring_later(Ring { kind, id });
    }
    Ok(revived)
}

/// Cancels a job that has not begun; gives what it acted on, which must be told in the same transaction
/// ([`crate::subjects`]).
pub async fn cancel(tx: &mut Tx, id: i64) -> Result<Option<(Kind, i64)>> {
    const SQL: &str = "UPDATE jobs SET state = 'cancelled', waiting = FALSE, finished_at = $2, last_error = 'cancelled by the operator' WHERE id = $1 AND state IN ('scheduled', 'ready') RETURNING kind, subject_id";
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(id).bind(now).fetch_optional(c))?)
}

/// Workers claim no more jobs of the kind; those that run go on.
pub async fn pause_kind(tx: &mut Tx, kind: Kind) -> Result<()> {
    let now = tx.now;
    execute!(tx, "INSERT INTO paused_kinds (kind, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING", kind, now)?;
    Ok(())
}

/// `false` where the kind was not paused. The dispatcher rings for what has waited.
pub async fn resume_kind(tx: &mut Tx, kind: Kind) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM paused_kinds WHERE kind = $1", kind)? > 0)
}

pub async fn paused_kinds(conn: &mut Conn) -> Result<Vec<Kind>> {
    const SQL: &str = concat!("SELECT kind FROM paused_kinds WHERE ", known!(), " ORDER BY kind");
    Ok(run!(conn, c => sqlx::query_scalar(SQL).fetch_all(c))?)
}

/// How many jobs stand in each state that has not ended, and how many are dead: `(kind, state, count)`.
pub async fn counts(conn: &mut Conn) -> Result<Vec<(Kind, State, i64)>> {
    const SQL: &str = concat!(
        "SELECT kind, state, count(*) FROM jobs WHERE state = 'scheduled' AND ",
        known!(),
        " GROUP BY kind, state UNION ALL SELECT kind, state, count(*) FROM jobs WHERE state = 'ready' AND ",
        known!(),
        " GROUP BY kind, state UNION ALL SELECT kind, state, count(*) FROM jobs WHERE state = 'running' AND ",
        known!(),
        " GROUP BY kind, state UNION ALL SELECT kind, state, count(*) FROM jobs WHERE state = 'dead' AND ",
        known!(),
        " GROUP BY kind, state"
    );
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_all(c))?)
}

/// Since when the oldest ready job of each kind has been due.
pub async fn oldest_ready(conn: &mut Conn) -> Result<Vec<(Kind, DateTime<Utc>)>> {
    const SQL: &str =
        concat!("SELECT kind, min(run_at) FROM jobs WHERE state = 'ready' AND ", known!(), " GROUP BY kind");
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_all(c))?)
}
