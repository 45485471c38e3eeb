//! The `jobs` table: the durable queue. [`crier_domain::job`] shows the states and transitions of a row.
//!
//! - here: enqueue, cancel, reschedule, run now — run in the caller's transaction;
//! - [`engine`]: claim, heartbeat, settle, release — run by a worker;
//! - [`lanes`]: load, pause, narrow;
//! - [`wake`]: wakes jobs that wait for a lane, when others leave it;
//! - [`dispatch`]: due, stale notifications, rescue, sweep, purge — run by the scheduler;
//! - [`holds`]: periods in which Crier itself held back the jobs of a lane;
//! - [`operate`]: list, show, pause, retry, counts — run by an operator.
//!
//! SQLite uses the index of unfinished jobs, `jobs_subject`, only if a statement repeats its condition, `state IN
//! ('scheduled', 'ready', 'running')`, even beside a narrower one. Otherwise it reads all jobs.
//! `tests/store/sqlite_plans.rs` checks this.

use std::sync::LazyLock;

use chrono::SubsecRound;
use chrono::{DateTime, Utc};
use crier_domain::job::{ClaimedJob, JobKind, JobNotification, Lane, NewJob, workspace_lane};

use super::db::{execute, run, time_text};
use super::{Conn, Result, Tx};

pub mod dispatch;
pub mod engine;
pub mod holds;
pub mod lanes;
pub mod operate;
pub(crate) mod wake;
mod workspaces;

/// Encodes a list of ids as one bind: a JSON array, which both engines can unnest (see [`list_sql!`]).
pub fn id_list(ids: &[i64]) -> String {
    let mut out = String::with_capacity(ids.len() * 8 + 2);
    out.push('[');
    for (i, id) in ids.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&id.to_string());
    }
    out.push(']');
    out
}

/// A statement on the rows of a list of ids, bound as `$1`. Takes two pieces of SQL, before and after the `IN`, and
/// constants as [`sql!`](super::sql::sql). A literal before these is a lock, as in
/// [`locking_sql!`](super::sql::locking_sql).
///
/// Postgres keeps a plan that it made while the table was small, and treats a table that was just filled as small. So
/// the statements of the queue force the plan. `value || ''` and `id + 0` have no effect on the result, but make the
/// planner expect a single id and use the primary key. `LIMIT (SELECT $2)` hides the limit, so that the planner starts
/// at the head of the right index instead of reading and sorting the whole index. `tests/store/plans.rs` and
/// `cached_plans.rs` check this.
macro_rules! list_sql {
    ($conn:expr, $before:literal, $after:literal $(, $name:ident)* $(,)?) => {
        $crate::jobs::list_sql!($conn, $before, $after, "" $(, $name)*)
    };
    ($conn:expr, $before:literal, $after:literal, $lock:literal $(, $name:ident)* $(,)?) => {
        $conn.for_engine(
            {
                const LOCK: &str = $lock;
                const IDS: &str =
                    "(SELECT value::bigint FROM json_array_elements_text($1::json) WHERE value = value || '')";
                $crate::sql::sql!(concat!($before, " IN {IDS} ", $after), IDS, LOCK $(, $name)*)
            },
            {
                const LOCK: &str = "";
                const IDS: &str = "(SELECT value FROM json_each($1))";
                $crate::sql::sql!(concat!($before, " IN {IDS} ", $after), IDS, LOCK $(, $name)*)
            },
        )
    };
}
pub(crate) use list_sql;

/// Reads a statement of the queue that differs between the engines: `sql/postgres/NAME.sql` or `sql/sqlite/NAME.sql`.
macro_rules! sql_file {
    ($conn:expr, $name:literal) => {
        $conn.for_engine(
            include_str!(concat!("sql/postgres/", $name, ".sql")),
            include_str!(concat!("sql/sqlite/", $name, ".sql")),
        )
    };
}
use sql_file;

/// Encodes the kinds that this version knows as one bind. During an upgrade or after a rollback, there may be jobs of
/// kinds that only a newer version knows: they are not touched, and block no other job. On Postgres, `coalesce` has no
/// effect on the condition, but makes the planner expect half of the rows instead of almost none.
fn known_kinds() -> &'static str {
    static JSON: LazyLock<String> = LazyLock::new(|| serde_json::json!(JobKind::ALL).to_string());
    &JSON
}

/// Encodes the kinds that this version knows (see [`known_kinds`]) and their caps as one bind.
fn kinds_with_caps() -> &'static str {
    static JSON: LazyLock<String> = LazyLock::new(|| {
        let caps = |kind: &JobKind| (*kind, kind.limits().lane_cap, kind.limits().workspace_cap);
        serde_json::json!(JobKind::ALL.iter().map(caps).collect::<Vec<_>>()).to_string()
    });
    &JSON
}

/// A row to notify for, as returned by `RETURNING kind, id, run_at`.
#[derive(sqlx_macros::FromRow)]
struct NotifyRow {
    kind: JobKind,
    id: i64,
    run_at: DateTime<Utc>,
}

/// Notifies for rows after the commit, in the order in which they should run; `RETURNING` has no defined order.
fn notify_in_order(tx: &mut Tx, mut rows: Vec<NotifyRow>) {
    rows.sort_by_key(|row| (row.run_at, row.id));
    for row in rows {
        tx.notify_later(JobNotification { kind: row.kind, id: row.id });
    }
}

/// Enqueues a job in the caller's transaction, and returns its id. Workers are notified after the commit. Returns
/// `None` if the subject already has an unfinished job of this kind.
pub async fn enqueue(tx: &mut Tx, job: &NewJob) -> Result<Option<i64>> {
    const SQL: &str = "
        INSERT INTO jobs (
            kind, subject_id, lane, state, run_at, max_attempts, trace, dispatched_at, created_at,
            workspace_lane
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9)
        ON CONFLICT DO NOTHING
        RETURNING id";
    let now = tx.now;
    let due = job.run_at <= now;
    let state = if due { "ready" } else { "scheduled" };
    let id: Option<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(job.kind).bind(job.subject_id).bind(&job.lane)
        .bind(state).bind(job.run_at.trunc_subsecs(6)).bind(job.kind.limits().max_attempts).bind(&job.trace)
        .bind(now).bind(workspace_lane(job.kind, job.workspace_id)).fetch_optional(c))?;
    if let Some(id) = id {
        if due {
            tx.notify_later(JobNotification { kind: job.kind, id });
        }
        tx.count_enqueued(job.kind);
    }
    Ok(id)
}

/// A subject for which [`enqueue_each`] enqueues a job.
#[derive(Clone, Copy, Debug)]
pub struct JobSubject {
    pub id: i64,
    pub lane: Lane,
    /// The workspace in whose share of the kind's places the job counts.
    pub workspace_id: Option<i64>,
}

/// Enqueues a copy of `template` for each subject in its lane, in one statement. A subject that already has an
/// unfinished job keeps it. Returns how many jobs were enqueued.
pub async fn enqueue_each(tx: &mut Tx, template: &NewJob, subjects: &[JobSubject]) -> Result<usize> {
    let due = template.run_at <= tx.now;
    let ids = insert_each(tx, template, if due { "ready" } else { "scheduled" }, false, subjects).await?;
    if due {
        ids.iter().for_each(|id| tx.notify_later(JobNotification { kind: template.kind, id: *id }));
    }
    Ok(ids.len())
}

/// Enqueues jobs for subjects of one lane, possibly very many. All are due and wait for the lane, which wakes only as
/// many as it has places, so they do not delay other jobs.
pub async fn enqueue_in_lane(tx: &mut Tx, template: &NewJob, lane: Lane, subject_ids: &[i64]) -> Result<()> {
    let subject = |id: &i64| JobSubject { id: *id, lane, workspace_id: template.workspace_id };
    let subjects: Vec<_> = subject_ids.iter().map(subject).collect();
    insert_each(tx, template, "ready", true, &subjects).await?;
    tx.free_places(&lane.to_string(), template.kind.limits().lane_cap.unwrap_or(i64::MAX));
    Ok(())
}

async fn insert_each(
    tx: &mut Tx,
    template: &NewJob,
    state: &str,
    waiting: bool,
    subjects: &[JobSubject],
) -> Result<Vec<i64>> {
    if subjects.is_empty() {
        return Ok(Vec::new());
    }
    let sql = sql_file!(tx, "enqueue_each");
    let (now, run_at, attempts) = (tx.now, template.run_at.trunc_subsecs(6), template.kind.limits().max_attempts);
    let each = |s: &JobSubject| (s.id, s.lane.to_string(), workspace_lane(template.kind, s.workspace_id));
    let list: Vec<_> = subjects.iter().map(each).collect();
    let list = serde_json::json!(list).to_string();
    let ids: Vec<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(&list).bind(template.kind).bind(state).bind(waiting)
        .bind(run_at).bind(attempts).bind(&template.trace).bind(now).fetch_all(c))?;
    ids.iter().for_each(|_| tx.count_enqueued(template.kind));
    Ok(ids)
}

/// Cancels the subject's job if it has not started. Returns `true` if a job is running; it continues.
pub async fn cancel_subject(tx: &mut Tx, kind: JobKind, subject_id: i64) -> Result<bool> {
    const SQL: &str = "
        UPDATE jobs
        SET state = 'cancelled', waiting = FALSE, finished_at = $3
        WHERE kind = $1
            AND subject_id = $2
            AND state IN ('scheduled', 'ready')
            AND state IN ('scheduled', 'ready', 'running')";
    let now = tx.now;
    execute!(tx, SQL, kind, subject_id, now)?;
    is_running(tx, kind, subject_id).await
}

/// Moves the unstarted jobs of subjects to other times, which have not passed. A running job continues.
pub async fn reschedule_each(tx: &mut Tx, kind: JobKind, times: &[(i64, DateTime<Utc>)]) -> Result<()> {
    if times.is_empty() {
        return Ok(());
    }
    // `|| ''` as in `list_sql!`. SQLite would read all jobs of the kind for a join with their subjects.
    let sql = tx.for_engine(
        "
        WITH moved AS (
            SELECT (value ->> 0)::bigint AS subject, (value ->> 1)::timestamptz AS at
            FROM json_array_elements($1::json)
            WHERE value ->> 0 = (value ->> 0) || ''
        )
        UPDATE jobs
        SET state = 'scheduled', waiting = FALSE, run_at = moved.at
        FROM moved
        WHERE kind = $2
            AND subject_id = moved.subject
            AND state IN ('scheduled', 'ready')
            AND state IN ('scheduled', 'ready', 'running')",
        "
        UPDATE jobs
        SET state = 'scheduled', waiting = FALSE, run_at = moved.value ->> 1
        FROM json_each($1) moved
        WHERE jobs.id = (
            SELECT j.id
            FROM jobs j
            WHERE j.kind = $2
                AND j.subject_id = moved.value ->> 0
                AND j.state IN ('scheduled', 'ready')
                AND j.state IN ('scheduled', 'ready', 'running')
        )",
    );
    let row = |(id, at): &(i64, DateTime<Utc>)| (*id, time_text(at.trunc_subsecs(6)));
    let rows = serde_json::json!(times.iter().map(row).collect::<Vec<_>>()).to_string();
    execute!(tx, sql, &rows, kind)?;
    Ok(())
}

/// Returns whether the subject's job is running.
pub async fn is_running(conn: &mut Conn, kind: JobKind, subject_id: i64) -> Result<bool> {
    const SQL: &str = "
        SELECT id
        FROM jobs
        WHERE kind = $1
            AND subject_id = $2
            AND state = 'running'
            AND state IN ('scheduled', 'ready', 'running')";
    let id: Option<i64> = run!(conn, c => sqlx::query_scalar(SQL).bind(kind).bind(subject_id).fetch_optional(c))?;
    Ok(id.is_some())
}

/// Returns the ids of those subjects whose job is running.
pub async fn running_among(conn: &mut Conn, kind: JobKind, subject_ids: &[i64]) -> Result<Vec<i64>> {
    let sql = list_sql!(
        conn,
        "SELECT subject_id FROM jobs WHERE subject_id",
        "AND kind = $2 AND state = 'running' AND state IN ('scheduled', 'ready', 'running')"
    );
    let ids = id_list(subject_ids);
    Ok(run!(conn, c => sqlx::query_scalar(sql).bind(&ids).bind(kind).fetch_all(c))?)
}

/// Refunds the attempt of the current run. Call it when the run ends, before the job is settled.
pub async fn refund_attempt(tx: &mut Tx, job: &ClaimedJob) -> Result<()> {
    const SQL: &str = "
        UPDATE jobs
        SET attempt = attempt - 1
        WHERE id = $1
            AND fence = $2
            AND state = 'running'";
    execute!(tx, SQL, job.id, job.fence)?;
    Ok(())
}

/// Makes the next run of a job its first one again, because its subject has made progress. Crashes before it do not count.
pub async fn reset_attempts(tx: &mut Tx, job: &ClaimedJob) -> Result<()> {
    const SQL: &str = "
        UPDATE jobs
        SET attempt = 0, crashes = 0
        WHERE id = $1
            AND fence = $2
            AND state = 'running'";
    execute!(tx, SQL, job.id, job.fence)?;
    Ok(())
}

/// Makes the subject's unstarted job due now, in the lane of `job`, or enqueues a new one.
pub async fn run_now(tx: &mut Tx, job: &NewJob) -> Result<()> {
    const SQL: &str = "
        UPDATE jobs
        SET state = 'ready', waiting = FALSE, lane = $4, workspace_lane = $5, run_at = $3,
            dispatched_at = $3
        WHERE kind = $1
            AND subject_id = $2
            AND state IN ('scheduled', 'ready')
            AND state IN ('scheduled', 'ready', 'running')
        RETURNING id";
    let now = tx.now;
    let workspace = workspace_lane(job.kind, job.workspace_id);
    let id: Option<i64> = run!(tx, c => {
        let update = sqlx::query_scalar(SQL).bind(job.kind).bind(job.subject_id).bind(now);
        update.bind(&job.lane).bind(&workspace).fetch_optional(c)
    })?;
    match id {
        Some(id) => tx.notify_later(JobNotification { kind: job.kind, id }),
        None => {
            enqueue(tx, job).await?;
        }
    }
    Ok(())
}
