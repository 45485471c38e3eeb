//! A post's targets, one per account. An attempt at a target starts in [`starting`] and ends in [`ending`].
//! [`unpublishing`] deletes its post from the platform.

use chrono::{DateTime, Utc};
use crier_domain::failure::Failure;
use crier_domain::job::ClaimedJob;
use crier_domain::platform::Platform;
use crier_domain::post::{Target, TargetOverride, TargetStatus};
use serde_json::{Map, Value, json};
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::sql;
use super::{Conn, Result, Tx};

mod ending;
mod starting;
pub mod unpublishing;

pub use ending::{NewAttempt, StoredTarget, TargetOutcome, TargetUpdate, attempt_summaries, attempts, end, end_each};
pub use starting::{StartingCall, start, start_calls, start_marked};

const COLUMNS: &str = "
    id, post_id, account_id, platform, status, content, media, options, signature, thread, first_comment, marker,
    call_started_at, external_id, url, published_parts, error, attempts, next_attempt_at, published_at, created_at, updated_at";

/// A target to create for an account.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTarget {
    pub account_id: i64,
    /// The position of the account in the client's list.
    pub position: i32,
    pub target_override: TargetOverride,
}

/// Inserts pending targets of a post in one statement, each with the platform of its account. Returns their ids, in the
/// order of `new`.
pub async fn insert(tx: &mut Tx, post_id: i64, new: &[(&NewTarget, Platform)]) -> Result<Vec<i64>> {
    // `nullif`: a JSON null is stored as an SQL NULL.
    let sql = tx.for_engine(
        "
        INSERT INTO post_targets (
            post_id, account_id, platform, position, status, content, media, options, signature, created_at, updated_at,
            thread, first_comment
        )
        SELECT $2, (value ->> 0)::bigint, value ->> 1, (value ->> 2)::integer, 'pending', value ->> 3,
            nullif(value -> 4, 'null'), value -> 5, value ->> 6, $3, $3, nullif(value -> 7, 'null'),
            nullif(value -> 8, 'null')
        FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS new (value, n)
        ORDER BY n
        RETURNING id",
        "
        INSERT INTO post_targets (
            post_id, account_id, platform, position, status, content, media, options, signature, created_at, updated_at,
            thread, first_comment
        )
        SELECT $2, value ->> 0, value ->> 1, value ->> 2, 'pending', value ->> 3,
            nullif(value -> 4, 'null'), value -> 5, value ->> 6, $3, $3, nullif(value -> 7, 'null'),
            nullif(value -> 8, 'null')
        FROM json_each($1)
        ORDER BY key
        RETURNING id",
    );
    let (rows, now) = (encode_new(new), tx.now);
    let mut ids: Vec<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(&rows).bind(post_id).bind(now).fetch_all(c))?;
    // Ids ascend in the order of the rows; `RETURNING` has no defined order.
    ids.sort_unstable();
    Ok(ids)
}

/// Encodes targets to insert as one bind: a JSON array with an array of values for each target.
pub(super) fn encode_new(new: &[(&NewTarget, Platform)]) -> String {
    let row = |(t, platform): &(&NewTarget, Platform)| {
        let own = &t.target_override;
        json!([
            t.account_id,
            platform,
            t.position,
            own.content,
            own.media,
            own.options,
            own.signature,
            own.thread,
            own.first_comment
        ])
    };
    Value::from_iter(new.iter().map(row)).to_string()
}

/// Lists a post's targets, in the order of the client's list of accounts.
pub async fn list(conn: &mut Conn, post_id: i64) -> Result<Vec<Target>> {
    let sql = sql!("SELECT {COLUMNS} FROM post_targets WHERE post_id = $1 ORDER BY position, id", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(post_id).fetch_all(c))?)
}

/// Returns the number of targets of posts.
pub async fn count(conn: &mut Conn, post_ids: &[i64]) -> Result<i64> {
    let sql = list_sql!(conn, "SELECT count(*) FROM post_targets WHERE post_id", "");
    let ids = id_list(post_ids);
    Ok(run!(conn, c => sqlx::query_scalar(sql).bind(&ids).fetch_one(c))?)
}

/// A target as shown in a list of posts.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct TargetSummary {
    pub post_id: i64,
    pub account_id: i64,
    pub status: TargetStatus,
    #[sqlx(json(nullable))]
    pub error: Option<Failure>,
    /// The number of parts that are published, if it failed.
    pub published_parts: Option<i32>,
    /// The number of its own parts that follow the text, if it failed and has an override for them.
    pub own_parts: Option<i32>,
}

/// Returns summaries of the targets of posts, ordered within each post.
pub async fn target_summaries(conn: &mut Conn, post_ids: &[i64]) -> Result<Vec<TargetSummary>> {
    let sql = conn.for_engine(
        list_sql!(
            conn,
            "
        SELECT post_id, account_id, status, error,
            CASE WHEN status = 'failed' THEN jsonb_array_length(published_parts) END AS published_parts,
            CASE WHEN status = 'failed' THEN jsonb_array_length(thread) END AS own_parts
        FROM post_targets
        WHERE post_id",
            "
        ORDER BY position, id"
        ),
        list_sql!(
            conn,
            "
        SELECT post_id, account_id, status, error,
            CASE WHEN status = 'failed' THEN json_array_length(published_parts) END AS published_parts,
            CASE WHEN status = 'failed' THEN json_array_length(thread) END AS own_parts
        FROM post_targets
        WHERE post_id",
            "
        ORDER BY position, id"
        ),
    );
    let ids = id_list(post_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&ids).fetch_all(c))?)
}

pub async fn find(conn: &mut Conn, target_id: i64) -> Result<Option<Target>> {
    let sql = sql!("SELECT {COLUMNS} FROM post_targets WHERE id = $1", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(target_id).fetch_optional(c))?)
}

/// The target of a run.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct RunTarget {
    #[sqlx(flatten)]
    pub target: Target,
    pub job_id: i64,
    pub fence: i64,
    /// Whether the worker still holds the job.
    pub held: bool,
}

/// Finds the targets of runs, only those of these posts, whose rows the caller has locked. The rows of the jobs are not
/// locked: a later run of such a job waits for the post, and then finds what this run stores.
pub async fn find_held(tx: &mut Tx, jobs: &[&ClaimedJob], post_ids: &[i64]) -> Result<Vec<RunTarget>> {
    // `|| ''` as in `list_sql!`. The columns of `run` have names that no column of the tables has.
    let sql = tx.for_engine(
        "
        WITH run AS (
            SELECT (value ->> 0)::bigint AS subject, (value ->> 1)::bigint AS job, (value ->> 2)::bigint AS run_fence,
                value ->> 3 AS run_worker
            FROM json_array_elements($1::json)
            WHERE value ->> 0 = (value ->> 0) || ''
        )
        SELECT t.*, job AS job_id, run_fence AS fence,
            EXISTS (
                SELECT 1
                FROM jobs j
                WHERE j.id = job
                    AND j.fence = run_fence
                    AND j.worker = run_worker
                    AND j.state || '' = 'running'
            ) AS held
        FROM run
        JOIN post_targets t
            ON t.id = subject AND t.post_id IN (SELECT value::bigint FROM json_array_elements_text($2::json))",
        "
        SELECT t.*, run.value ->> 1 AS job_id, run.value ->> 2 AS fence,
            EXISTS (
                SELECT 1
                FROM jobs j
                WHERE j.id = run.value ->> 1
                    AND j.fence = run.value ->> 2
                    AND j.worker = run.value ->> 3
                    AND j.state = 'running'
            ) AS held
        FROM json_each($1) run
        JOIN post_targets t
            ON t.id = run.value ->> 0 AND t.post_id IN (SELECT value FROM json_each($2))",
    );
    let run = |job: &&ClaimedJob| json!([job.subject_id, job.id, job.fence, job.worker]);
    let runs = Value::from_iter(jobs.iter().map(run)).to_string();
    let post_ids = id_list(post_ids);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(&runs).bind(&post_ids).fetch_all(c))?)
}

/// Finds a target without its JSON columns, to end one whose row cannot be read.
pub async fn find_without_json(conn: &mut Conn, target_id: i64) -> Result<Option<Target>> {
    // `nullif` of a column with itself is NULL, of the column's type, without its value being decoded.
    const SQL: &str = "
        SELECT id, post_id, account_id, platform, status, content, signature, call_started_at, external_id, url,
            attempts, next_attempt_at, published_at, created_at, updated_at, nullif(media, media) AS media,
            coalesce(nullif(options, options), '{}') AS options, nullif(marker, marker) AS marker,
            nullif(error, error) AS error, nullif(thread, thread) AS thread,
            nullif(first_comment, first_comment) AS first_comment,
            coalesce(nullif(published_parts, published_parts), '[]') AS published_parts
        FROM post_targets
        WHERE id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(target_id).fetch_optional(c))?)
}

pub async fn delete(tx: &mut Tx, target_id: i64) -> Result<()> {
    execute!(tx, "DELETE FROM post_targets WHERE id = $1", target_id)?;
    Ok(())
}

pub async fn set_position(tx: &mut Tx, target_id: i64, position: i32) -> Result<()> {
    execute!(tx, "UPDATE post_targets SET position = $2 WHERE id = $1", target_id, position)?;
    Ok(())
}

/// Updates the overrides and the signature. Also call it if the post's own content changes. Attempts with the old content
/// do not apply to the new one, so the marker is deleted, unless the outcome of a call with it is unknown: then the next
/// run must look up the post of that call.
pub async fn set_overrides(tx: &mut Tx, target_id: i64, own: &TargetOverride) -> Result<()> {
    const SQL: &str = "
        UPDATE post_targets
        SET content = $2, media = $3, options = $4, signature = $5, thread = $7, first_comment = $8,
            marker = CASE WHEN call_started_at IS NULL THEN NULL ELSE marker END, updated_at = $6
        WHERE id = $1";
    let now = tx.now;
    let (media, thread) = (own.media.as_ref().map(Json), own.thread.as_ref().map(Json));
    let (options, comment) = (Json(&own.options), own.first_comment.as_ref().map(Json));
    execute!(tx, SQL, target_id, &own.content, media, options, &own.signature, now, thread, comment)?;
    Ok(())
}

/// Makes a target pending again, for new attempts (PUT `now`). If `forget_call`, a call of unknown outcome is not
/// looked up again, because the platform cannot tell and a user has decided.
pub async fn reset(tx: &mut Tx, target_id: i64, forget_call: bool) -> Result<()> {
    const SQL: &str = "
        UPDATE post_targets
        SET status = 'pending', next_attempt_at = NULL,
            call_started_at = CASE WHEN $2 THEN NULL ELSE call_started_at END, updated_at = $3
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, forget_call, now)?;
    Ok(())
}

/// Refunds the attempt of the last run, which was interrupted before its call.
pub async fn refund_attempt(tx: &mut Tx, target_id: i64) -> Result<()> {
    const SQL: &str = "UPDATE post_targets SET attempts = attempts - 1, updated_at = $2 WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, now)?;
    Ok(())
}

/// Stores the marker and the time *before* the call that uses them. Returns false, and stores nothing, if the post was
/// deleted: its videos may have been transferred for a long time since the run began.
pub async fn mark_call(tx: &mut Tx, target_id: i64, marker: &Map<String, Value>) -> Result<bool> {
    const SQL: &str = "
        UPDATE post_targets
        SET marker = $2, call_started_at = $3, updated_at = $3
        WHERE id = $1
            AND EXISTS (SELECT 1 FROM posts p WHERE p.id = post_targets.post_id AND p.deleted_at IS NULL)";
    let now = tx.now;
    Ok(execute!(tx, SQL, target_id, Json(marker), now)? > 0)
}

/// Clears the time of a call that was not made or was rejected.
pub async fn clear_call(tx: &mut Tx, target_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE post_targets
        SET call_started_at = NULL, updated_at = $2
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, now)?;
    Ok(())
}

/// Postpones the call until `until`. The run does not count: `attempts` is the number before it.
pub async fn postpone(
    tx: &mut Tx,
    target_id: i64,
    attempts: i32,
    failure: &Failure,
    until: DateTime<Utc>,
) -> Result<()> {
    const SQL: &str = "
        UPDATE post_targets
        SET status = 'publishing', attempts = $2, error = $3, next_attempt_at = $4, call_started_at = NULL,
            updated_at = $5
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, attempts, Json(failure), until, now)?;
    Ok(())
}

/// Stores why the platform rejected the post of a published target later. The post was published, so the status stays.
/// Another error stays too: then it returns false.
pub async fn set_rejection(tx: &mut Tx, target_id: i64, failure: &Failure) -> Result<bool> {
    const SQL: &str = "
        UPDATE post_targets
        SET error = $2, updated_at = $3
        WHERE id = $1 AND status = 'published' AND error IS NULL";
    let now = tx.now;
    Ok(execute!(tx, SQL, target_id, Json(failure), now)? > 0)
}

/// Stores the marker of a target whose call has not been made.
pub async fn set_marker(tx: &mut Tx, target_id: i64, marker: &Map<String, Value>) -> Result<()> {
    const SQL: &str = "UPDATE post_targets SET marker = $2, updated_at = $3 WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, Json(marker), now)?;
    Ok(())
}

/// Waits for the platform until `until`, with a marker that identifies its work. The run does not count: `attempts` is
/// the number before it. A call that was made remains open.
pub async fn await_platform(
    tx: &mut Tx,
    target_id: i64,
    attempts: i32,
    marker: &Map<String, Value>,
    failure: &Failure,
    until: DateTime<Utc>,
) -> Result<()> {
    const SQL: &str = "
        UPDATE post_targets
        SET status = 'publishing', attempts = $2, marker = $3, error = $4, next_attempt_at = $5, updated_at = $6
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, attempts, Json(marker), Json(failure), until, now)?;
    Ok(())
}
