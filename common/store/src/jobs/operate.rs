//! What an operator does with jobs (`crier jobs …`). All of it is safe while workers run.

use chrono::{DateTime, Utc};
use crier_domain::job::{JobKind, JobNotification, JobState};
use serde::Serialize;

use super::super::db::{execute, run};
use super::super::sql::sql;
use super::super::{Conn, Page, PageRequest, Result, Tx};

/// A job as the operator sees it.
#[derive(Debug, Clone, Serialize, sqlx_macros::FromRow)]
pub struct JobRow {
    pub id: i64,
    pub kind: JobKind,
    pub subject_id: i64,
    pub lane: Option<String>,
    pub state: JobState,
    pub waiting: bool,
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

/// Returns the SQL condition that this version knows the kind, with literals (see [`JobQuery::rows`]).
fn is_known() -> String {
    let kinds: Vec<String> = JobKind::ALL.iter().map(|kind| format!("'{kind}'")).collect();
    format!("coalesce(kind IN ({}), FALSE)", kinds.join(", "))
}

/// Running jobs of a lane. `lane = $1` is in addition to the lane's expression, because the index of running jobs has
/// the column itself.
const RUNNING_IN_LANE: &str = "lane = $1 AND state = 'running'";

/// Filters a list; `None` matches everything.
#[derive(Debug, Clone, Default)]
pub struct JobQuery {
    pub kind: Option<JobKind>,
    pub state: Option<JobState>,
    pub lane: Option<String>,
    /// Only jobs created before this time.
    pub created_before: Option<DateTime<Utc>>,
}

impl JobQuery {
    /// Returns the SQL of the matching rows, with `$1` for the lane and `$2` for the time. Each filter has its own
    /// text ([`super::super::sql`]). Kinds and states are literals, because a planner that does not know the state
    /// cannot use a partial index on it. If several index scans are needed, each has its own part, which ends with
    /// `end`.
    fn rows(&self, end: &str) -> String {
        // `|| ''` has no effect on the result, but excludes all indexes except the lane's, which is on that expression.
        let is = if self.lane.is_some() { "|| '' =" } else { "=" };
        let kind = match self.kind {
            Some(kind) => format!(" AND kind {is} '{kind}'"),
            None => format!(" AND {}", is_known()),
        };
        let state = self.state.map(|state| format!(" AND state {is} '{state}'")).unwrap_or_default();
        let rest = match (&self.lane, self.state) {
            // The lane's index has all of its jobs except the running ones, which are few.
            (Some(_), Some(JobState::Running)) => vec![format!("{kind}{state} AND {RUNNING_IN_LANE}")],
            (Some(_), None) => vec![format!("{kind} AND state <> 'running'"), format!("{kind} AND {RUNNING_IN_LANE}")],
            (Some(_), Some(_)) => vec![format!("{kind}{state} AND state <> 'running'")],
            (None, Some(JobState::Ready)) => {
                ["waiting AND lane IS NOT NULL", "NOT waiting"].map(|w| format!("{kind}{state} AND {w}")).into()
            }
            // Always true, like the condition on the lane of a waiting job, but the index has this condition.
            (None, Some(JobState::Running)) => vec![format!("{kind}{state} AND lease_until IS NOT NULL")],
            (None, Some(JobState::Scheduled)) if self.kind.is_none() => {
                JobKind::ALL.iter().map(|kind| format!(" AND kind = '{kind}'{state}")).collect()
            }
            (None, _) => vec![format!("{kind}{state}")],
        };
        let lane = if self.lane.is_some() { "lane || '' = $1" } else { "$1 = ''" };
        let part = |rest| {
            format!(
                "
                SELECT *
                FROM (
                    SELECT *
                    FROM jobs
                    WHERE {lane} AND created_at < $2{rest}{end}
                ) p"
            )
        };
        rest.into_iter().map(part).collect::<Vec<_>>().join(" UNION ALL ")
    }

    fn lane(&self) -> &str {
        self.lane.as_deref().unwrap_or_default()
    }

    fn before(&self) -> DateTime<Utc> {
        self.created_before.unwrap_or(DateTime::<Utc>::from_timestamp_nanos(i64::MAX))
    }
}

const COLUMNS: &str = "
    id, kind, subject_id, lane, state, waiting, run_at, attempt, max_attempts, crashes,
    lease_until, trace, last_error, created_at, finished_at";

/// Lists jobs, newest first.
pub async fn list(conn: &mut Conn, filter: &JobQuery, limit: i64) -> Result<Vec<JobRow>> {
    // Few jobs are ready or running: sort them instead of scanning all jobs in the order of ids.
    let few = filter.lane.is_none() && matches!(filter.state, Some(JobState::Ready | JobState::Running));
    let newest = if few { " ORDER BY id + 0 DESC LIMIT $3" } else { " ORDER BY id DESC LIMIT $3" };
    let sql = format!("SELECT {COLUMNS} FROM ({}) j ORDER BY id DESC LIMIT $3", filter.rows(newest));
    Ok(
        run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(filter.lane()).bind(filter.before()).bind(limit).fetch_all(c))?,
    )
}

/// The maximum number of jobs that are counted and can be shown on pages: millions of ended jobs may be stored.
const MAX_PAGED: i64 = 2_000;

/// Lists a page of jobs, newest first. `total` is at most 2,000.
pub async fn page(conn: &mut Conn, filter: &JobQuery, page: PageRequest) -> Result<Page<JobRow>> {
    let counted = format!("SELECT count(*) FROM (SELECT 1 FROM ({}) j LIMIT $3) c", filter.rows(" LIMIT $3"));
    let total: i64 = run!(conn, c => sqlx::query_scalar(sqlx::AssertSqlSafe(counted)).bind(filter.lane()).bind(filter.before()).bind(MAX_PAGED).fetch_one(c))?;
    let before = page.offset();
    if before >= total {
        return Ok(Page { rows: Vec::new(), total });
    }
    let mut rows = list(conn, filter, before + page.per_page.min(total - before)).await?;
    rows.drain(..usize::try_from(before).unwrap_or_default().min(rows.len()));
    Ok(Page { rows, total })
}

/// Returns the next jobs after the id `after`, oldest first, for a command that processes all of them in batches.
pub async fn next(conn: &mut Conn, filter: &JobQuery, after: i64, limit: i64) -> Result<Vec<JobRow>> {
    let rows = filter.rows(" AND id > $3 ORDER BY id LIMIT $4");
    let sql = format!("SELECT {COLUMNS} FROM ({rows}) j ORDER BY id LIMIT $4");
    Ok(
        run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(filter.lane()).bind(filter.before()).bind(after).bind(limit).fetch_all(c))?,
    )
}

pub async fn count(conn: &mut Conn, filter: &JobQuery) -> Result<i64> {
    let sql = format!("SELECT count(*) FROM ({}) j", filter.rows(""));
    Ok(
        run!(conn, c => sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(filter.lane()).bind(filter.before()).fetch_one(c))?,
    )
}

pub async fn show(conn: &mut Conn, id: i64) -> Result<Option<JobRow>> {
    let sql = sql!("SELECT {COLUMNS} FROM jobs WHERE id = $1", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(id).fetch_optional(c))?)
}

/// The load of a lane.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct LaneRow {
    pub running: i64,
    pub waiting: i64,
    pub paused_until: Option<DateTime<Utc>>,
    /// The reduced cap if the lane is narrowed.
    pub places: Option<i64>,
}

pub async fn lane(conn: &mut Conn, lane: &str, now: DateTime<Utc>) -> Result<LaneRow> {
    const SQL: &str = "
        SELECT (
            SELECT count(*)
            FROM jobs
            WHERE lane = $1 AND state = 'running'
        ) AS running,
            (
                SELECT count(*)
                FROM jobs
                WHERE lane = $1
                    AND state = 'ready'
                    AND waiting
            ) AS waiting,
            (
                SELECT paused_until
                FROM paused_lanes
                WHERE lane = $1 AND paused_until > $2
            ) AS paused_until,
            (SELECT places FROM narrow_lanes WHERE lane = $1) AS places";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(lane).bind(now).fetch_one(c))?)
}

/// Makes a dead or cancelled job ready again, with all of its attempts, and returns its subject, which must be updated
/// in the same transaction (`crier_jobs`). Returns `None` if the job is in another state, or if its subject has another
/// unfinished job.
pub async fn retry(tx: &mut Tx, id: i64) -> Result<Option<(JobKind, i64)>> {
    const SQL: &str = "
        UPDATE jobs
        SET state = 'ready', attempt = 0, crashes = 0, run_at = $2, dispatched_at = $2, finished_at = NULL,
            last_error = NULL, waiting = FALSE
        WHERE id = $1
            AND state IN ('dead', 'cancelled')
            AND NOT EXISTS (
                SELECT 1
                FROM jobs o
                WHERE o.kind = jobs.kind
                    AND o.subject_id = jobs.subject_id
                    AND o.state IN ('scheduled', 'ready', 'running')
            )
        RETURNING kind, subject_id";
    let now = tx.now;
    let revived: Option<(JobKind, i64)> = run!(tx, c => sqlx::query_as(SQL).bind(id).bind(now).fetch_optional(c))?;
    if let Some((kind, _)) = revived {
        tx.notify_later(JobNotification { kind, id });
    }
    Ok(revived)
}

/// Cancels a job that has not started, and returns its subject, which must be updated in the same transaction
/// (`crier_jobs`).
pub async fn cancel(tx: &mut Tx, id: i64) -> Result<Option<(JobKind, i64)>> {
    const SQL: &str = "
        UPDATE jobs
        SET state = 'cancelled', waiting = FALSE, finished_at = $2, last_error = 'canceled by the operator'
        WHERE id = $1 AND state IN ('scheduled', 'ready')
        RETURNING kind, subject_id";
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(id).bind(now).fetch_optional(c))?)
}

/// Returns the ids of due jobs of these kinds that have not started. Those of a kind are in the order of their ids.
pub async fn due_ids(conn: &mut Conn, kinds: &[JobKind], now: DateTime<Utc>) -> Result<Vec<i64>> {
    const SQL: &str = "
        SELECT id
        FROM jobs
        WHERE kind = $1
            AND state IN ('scheduled', 'ready')
            AND state IN ('scheduled', 'ready', 'running')
            AND run_at <= $2
        ORDER BY id";
    let mut ids = Vec::new();
    for kind in kinds {
        let due: Vec<i64> = run!(conn, c => sqlx::query_scalar(SQL).bind(*kind).bind(now).fetch_all(c))?;
        ids.extend(due);
    }
    Ok(ids)
}

/// Returns how many posts have a due `publish_target` job that has not started.
pub async fn count_due_posts(conn: &mut Conn, now: DateTime<Utc>) -> Result<i64> {
    const SQL: &str = "
        SELECT count(DISTINCT t.post_id)
        FROM jobs j
        JOIN post_targets t ON t.id = j.subject_id
        WHERE j.kind = $1
            AND j.state IN ('scheduled', 'ready')
            AND j.state IN ('scheduled', 'ready', 'running')
            AND j.run_at <= $2";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(JobKind::PublishTarget).bind(now).fetch_one(c))?)
}

/// Makes overdue jobs due now, so that none of them counts as late.
pub async fn make_due_now(tx: &mut Tx, ids: &[i64]) -> Result<()> {
    const SQL: &str = "
        UPDATE jobs
        SET run_at = $2
        WHERE id = $1 AND state IN ('scheduled', 'ready') AND run_at < $2";
    let now = tx.now;
    for id in ids {
        execute!(tx, SQL, *id, now)?;
    }
    Ok(())
}

/// Pauses a kind: workers claim none of its jobs. Running jobs continue.
pub async fn pause_kind(tx: &mut Tx, kind: JobKind) -> Result<()> {
    execute!(tx, "INSERT INTO paused_kinds (kind) VALUES ($1) ON CONFLICT DO NOTHING", kind)?;
    Ok(())
}

/// Resumes a kind. Returns `false` if it was not paused. The dispatcher notifies for the jobs that have waited.
pub async fn resume_kind(tx: &mut Tx, kind: JobKind) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM paused_kinds WHERE kind = $1", kind)? > 0)
}

/// Returns the paused kinds that this version knows.
pub async fn paused_kinds(conn: &mut Conn) -> Result<Vec<JobKind>> {
    let kinds: Vec<String> =
        run!(conn, c => sqlx::query_scalar("SELECT kind FROM paused_kinds ORDER BY kind").fetch_all(c))?;
    Ok(kinds.iter().filter_map(|kind| kind.parse().ok()).collect())
}

/// The number of jobs of a kind in a state, and the time at which the oldest of them is or was due.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct StateCount {
    pub kind: JobKind,
    pub state: JobState,
    pub waiting: bool,
    pub jobs: i64,
    pub oldest: DateTime<Utc>,
}

/// Counts unfinished and dead jobs, by kind and state. Jobs that wait for their lane are counted separately. It scans
/// indexes, so it is not for a hot path.
pub async fn overview(conn: &mut Conn) -> Result<Vec<StateCount>> {
    // `state` and `waiting` are literals instead of columns, so that an index contains all columns.
    let part = |(state, waiting, rows)| {
        format!(
            "
                SELECT kind, '{state}' AS state, {waiting} AS waiting, count(*) AS jobs,
                    min(run_at) AS oldest
                FROM jobs
                WHERE {rows} AND {}
                GROUP BY kind",
            is_known()
        )
    };
    let parts = [
        (JobState::Scheduled, "FALSE", "state = 'scheduled'"),
        (JobState::Ready, "TRUE", "state = 'ready' AND waiting AND lane IS NOT NULL"),
        (JobState::Ready, "FALSE", "state = 'ready' AND NOT waiting"),
        (JobState::Running, "FALSE", "state = 'running' AND lease_until IS NOT NULL"),
        (JobState::Dead, "FALSE", "state = 'dead'"),
    ];
    let sql = parts.map(part).join(" UNION ALL ");
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(c))?)
}
