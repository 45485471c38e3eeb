//! Rules for recurring posts, and when they are due. [`super::recurring_occurrences`] has their occurrences.
//!
//! Always lock a rule's row before changing the rule or its occurrences: changes and runs must not overlap.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::recurring_post::RecurringPost;
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{JobSubject, id_list, list_sql};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, StoreError, Tx, brands, jobs};

const COLUMNS: &str = "
    id, brand_id, author_id, name, frequency, weekdays, day, cron, time, starts_on, ends_on, count, destination,
    is_active, accounts, labels, planned, version, planned_version, problem, deleted_at, created_at, updated_at,
    variations, overrides";

/// A rule is due again after this time if its job is lost. The job sets the right time when it ends.
const JOB_PAUSE: TimeDelta = TimeDelta::hours(1);

/// Lists the brand's rules, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64) -> Result<Vec<RecurringPost>> {
    let sql = sql!(
        "SELECT {COLUMNS} FROM recurring_posts WHERE brand_id = $1 AND deleted_at IS NULL ORDER BY id DESC",
        COLUMNS
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).fetch_all(c))?)
}

/// Returns how many rules the brand has, and the size of their variations and overrides in bytes, without the rule
/// `except`.
pub async fn size(conn: &mut Conn, brand_id: i64, except: i64) -> Result<(i64, i64)> {
    const SQL: &str = "
        SELECT count(*),
            CAST(coalesce(sum(octet_length(CAST(variations AS text)) + octet_length(CAST(overrides AS text))), 0)
                AS bigint)
        FROM recurring_posts
        WHERE brand_id = $1 AND id <> $2 AND deleted_at IS NULL";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).bind(except).fetch_one(c))?)
}

pub async fn find(conn: &mut Conn, brand_id: i64, recurring_id: i64) -> Result<Option<RecurringPost>> {
    let sql =
        sql!("SELECT {COLUMNS} FROM recurring_posts WHERE brand_id = $1 AND id = $2 AND deleted_at IS NULL", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(recurring_id).fetch_optional(c))?)
}

/// Returns which of these rules of a brand exist.
pub async fn existing(conn: &mut Conn, brand_id: i64, ids: &[i64]) -> Result<Vec<i64>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = list_sql!(conn, "SELECT id FROM recurring_posts WHERE id", "AND brand_id = $2 AND deleted_at IS NULL");
    Ok(run!(conn, c => sqlx::query_scalar(sql).bind(id_list(ids)).bind(brand_id).fetch_all(c))?)
}

/// Finds a rule and locks its row.
pub async fn find_for_update(tx: &mut Tx, brand_id: i64, recurring_id: i64) -> Result<Option<RecurringPost>> {
    let sql = locking_sql!(
        tx,
        "SELECT {COLUMNS} FROM recurring_posts WHERE brand_id = $1 AND id = $2 AND deleted_at IS NULL {LOCK}",
        "FOR UPDATE",
        COLUMNS
    );
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(recurring_id).fetch_optional(c))?)
}

/// Finds a rule by its id only, for the operator. Also finds one that was deleted.
pub async fn find_any(conn: &mut Conn, recurring_id: i64) -> Result<Option<RecurringPost>> {
    let sql = sql!("SELECT {COLUMNS} FROM recurring_posts WHERE id = $1", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(recurring_id).fetch_optional(c))?)
}

/// Finds a rule by its id only, and locks its row, for the worker. Also finds one that was deleted.
pub async fn lock(tx: &mut Tx, recurring_id: i64) -> Result<Option<RecurringPost>> {
    let sql = locking_sql!(tx, "SELECT {COLUMNS} FROM recurring_posts WHERE id = $1 {LOCK}", "FOR UPDATE", COLUMNS);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(recurring_id).fetch_optional(c))?)
}

/// Stores a new rule and enqueues its first run. Ignores the id. Returns the rule with its id.
pub async fn create(tx: &mut Tx, rule: RecurringPost, trace: Option<&str>) -> Result<RecurringPost> {
    const SQL: &str = "
        INSERT INTO recurring_posts (
            brand_id, author_id, name, frequency, weekdays, day, cron, time, starts_on, ends_on, count, destination,
            is_active, accounts, labels, due_at, created_at, updated_at, variations, overrides
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $17, $18, $19)
        RETURNING id";
    let (now, due) = (tx.now, tx.now + JOB_PAUSE);
    let id: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(rule.brand_id).bind(rule.author_id).bind(&rule.name)
        .bind(rule.frequency).bind(Json(&rule.weekdays)).bind(rule.day).bind(&rule.cron).bind(&rule.time)
        .bind(rule.starts_on).bind(rule.ends_on).bind(rule.count).bind(rule.destination).bind(rule.is_active)
        .bind(Json(&rule.accounts)).bind(Json(&rule.labels)).bind(due).bind(now).bind(Json(&rule.variations))
        .bind(Json(&rule.overrides)).fetch_one(c))?;
    enqueue(tx, rule.brand_id, id, trace).await?;
    Ok(RecurringPost { id, ..rule })
}

/// Stores a changed rule, whose row is locked, and enqueues a run.
pub async fn update(tx: &mut Tx, rule: &RecurringPost, trace: Option<&str>) -> Result<()> {
    const SQL: &str = "
        UPDATE recurring_posts
        SET author_id = $2, name = $3, frequency = $4, weekdays = $5, day = $6, cron = $7, time = $8,
            starts_on = $9, ends_on = $10, count = $11, destination = $12, is_active = $13, accounts = $14,
            labels = $15, due_at = $16, updated_at = $17, variations = $18, overrides = $19,
            version = version + 1, problem = NULL
        WHERE id = $1";
    let (now, due) = (tx.now, tx.now + JOB_PAUSE);
    execute!(
        tx,
        SQL,
        rule.id,
        rule.author_id,
        &rule.name,
        rule.frequency,
        Json(&rule.weekdays),
        rule.day,
        &rule.cron,
        &rule.time,
        rule.starts_on,
        rule.ends_on,
        rule.count,
        rule.destination,
        rule.is_active,
        Json(&rule.accounts),
        Json(&rule.labels),
        due,
        now,
        Json(&rule.variations),
        Json(&rule.overrides)
    )?;
    enqueue(tx, rule.brand_id, rule.id, trace).await
}

/// Hides a rule, whose row is locked, and enqueues the run that deletes its occurrences and then the rule.
pub async fn hide(tx: &mut Tx, rule: &RecurringPost, trace: Option<&str>) -> Result<()> {
    const SQL: &str = "
        UPDATE recurring_posts
        SET deleted_at = $2, due_at = $3, version = version + 1
        WHERE id = $1";
    let (now, due) = (tx.now, tx.now + JOB_PAUSE);
    execute!(tx, SQL, rule.id, now, due)?;
    enqueue(tx, rule.brand_id, rule.id, trace).await
}

/// Deletes the row of a rule with its occurrences. Their posts remain.
pub async fn delete(tx: &mut Tx, recurring_id: i64) -> Result<()> {
    execute!(tx, "DELETE FROM recurring_posts WHERE id = $1", recurring_id)?;
    Ok(())
}

/// Plans the occurrences of all rules of a brand again, because the brand's time zone has changed.
pub async fn replan(tx: &mut Tx, brand_id: i64, trace: Option<&str>) -> Result<()> {
    const SQL: &str = "
        UPDATE recurring_posts
        SET version = version + 1, due_at = $2
        WHERE brand_id = $1
        RETURNING id";
    let due = tx.now + JOB_PAUSE;
    let mut ids: Vec<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(due).fetch_all(c))?;
    ids.sort_unstable();
    for id in ids {
        enqueue(tx, brand_id, id, trace).await?;
    }
    Ok(())
}

async fn enqueue(tx: &mut Tx, brand_id: i64, recurring_id: i64, trace: Option<&str>) -> Result<()> {
    let workspace = brands::workspace_of(tx, brand_id).await?;
    let job = NewJob::new(JobKind::MakeOccurrences, recurring_id, tx.now)
        .lane(Lane::Recurring(brand_id))
        .workspace(workspace.ok_or_else(|| StoreError::Decode("a rule has no brand".to_owned()))?)
        .trace(trace.map(str::to_owned));
    // A run that has begun finds another version when it ends, and is repeated.
    jobs::run_now(tx, &job).await
}

/// Enqueues runs of due rules, at most `limit`, the longest overdue first. Returns how many rules were due. Postpones
/// them, so that they are not due again before their runs end. A rule that has a job keeps it.
pub async fn enqueue_due(tx: &mut Tx, limit: i64) -> Result<usize> {
    let sql = locking_sql!(
        tx,
        "
        WITH due AS MATERIALIZED (
            SELECT id
            FROM recurring_posts
            WHERE due_at <= $1
            ORDER BY due_at
            LIMIT (SELECT $2)
            {LOCK}
        )
        UPDATE recurring_posts
        SET due_at = $3
        WHERE id IN (SELECT id FROM due WHERE id = id + 0)
        RETURNING id, brand_id, (SELECT b.workspace_id FROM brands b WHERE b.id = recurring_posts.brand_id)",
        "FOR UPDATE SKIP LOCKED"
    );
    let (now, next) = (tx.now, tx.now + JOB_PAUSE);
    let due: Vec<(i64, i64, i64)> = run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).bind(next).fetch_all(c))?;
    let subject = |(id, brand_id, workspace_id): &(i64, i64, i64)| JobSubject {
        id: *id,
        lane: Lane::Recurring(*brand_id),
        workspace_id: Some(*workspace_id),
    };
    let subjects: Vec<JobSubject> = due.iter().map(subject).collect();
    jobs::enqueue_each(tx, &NewJob::new(JobKind::MakeOccurrences, 0, now), &subjects).await?;
    Ok(due.len())
}

/// Records that the occurrences are planned for the current version of the rule. The caller has locked its row.
pub async fn set_planned(tx: &mut Tx, rule: &RecurringPost, planned: i64) -> Result<()> {
    const SQL: &str = "UPDATE recurring_posts SET planned = $2, planned_version = $3 WHERE id = $1";
    if planned != rule.planned || rule.version != rule.planned_version {
        execute!(tx, SQL, rule.id, planned, rule.version)?;
    }
    Ok(())
}

/// Counts an occurrence that was removed and stays. The caller has locked the row of the rule.
pub async fn count_kept(tx: &mut Tx, recurring_id: i64) -> Result<()> {
    execute!(tx, "UPDATE recurring_posts SET planned = planned + 1 WHERE id = $1", recurring_id)?;
    Ok(())
}

/// Records the end of a run: when the rule is due again, and why it could not make an occurrence. The caller has locked
/// its row.
pub async fn end_run(
    tx: &mut Tx,
    recurring_id: i64,
    due_at: Option<DateTime<Utc>>,
    problem: Option<&str>,
) -> Result<()> {
    const SQL: &str = "UPDATE recurring_posts SET due_at = $2, problem = $3 WHERE id = $1";
    execute!(tx, SQL, recurring_id, due_at, problem)?;
    Ok(())
}
