//! The inbox sync of each account: how far its messages were read, and when the next sync is due.
//!
//! The due time is in the row, as with feeds, so any number of schedulers can run. Always lock the row before the
//! account's conversations.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::failure::Failure;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::plan::{Feature, Plan, Plans, StorageUsage};
use crier_domain::platform::Platform;
use serde_json::Value;
use sqlx::types::Json;

use super::db::{execute, run};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, Tx, jobs};

/// When an account is due again if the job that was enqueued for it is lost.
const NEXT_SYNC: TimeDelta = TimeDelta::minutes(30);

/// A sync that is requested again waits until this part of the platform's interval has passed, so that the client of one
/// workspace cannot use up a quota that all of them share.
const REQUESTS_PER_INTERVAL: i32 = 5;

/// The connector's cursor of each of its streams.
pub type Cursors = BTreeMap<String, Value>;

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct InboxSync {
    pub account_id: i64,
    /// The time for which a sync was last requested.
    pub requested_at: Option<DateTime<Utc>>,
    /// The number of consecutive syncs that have failed, at least in part.
    pub failures: i32,
    /// The time of the last sync that succeeded completely.
    pub synced_at: Option<DateTime<Utc>>,
    pub next_sync_at: Option<DateTime<Utc>>,
    /// Why the last sync failed, or what the platform does not permit the account to read.
    #[sqlx(json(nullable))]
    pub last_error: Option<Failure>,
    #[sqlx(json)]
    pub cursors: Cursors,
    /// The streams with which the next sync continues. If empty, it reads all streams.
    #[sqlx(json)]
    pub unfinished: Vec<String>,
}

const COLUMNS: &str = "account_id, requested_at, failures, synced_at, next_sync_at, last_error, cursors, unfinished";

pub async fn find(conn: &mut Conn, account_id: i64) -> Result<Option<InboxSync>> {
    let sql = sql!("SELECT {COLUMNS} FROM inbox_syncs WHERE account_id = $1", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(account_id).fetch_optional(c))?)
}

/// Finds an account's row and locks it.
pub async fn lock(tx: &mut Tx, account_id: i64) -> Result<Option<InboxSync>> {
    let sql = locking_sql!(tx, "SELECT {COLUMNS} FROM inbox_syncs WHERE account_id = $1 {LOCK}", "FOR UPDATE", COLUMNS);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(account_id).fetch_optional(c))?)
}

/// Locks the rows of a brand's accounts, before several of its conversations are changed: the syncs of the accounts lock
/// them in another order.
pub(super) async fn lock_of_brand(tx: &mut Tx, brand_id: i64) -> Result<()> {
    let sql = locking_sql!(
        tx,
        "
        SELECT account_id
        FROM inbox_syncs
        WHERE account_id IN (SELECT account_id FROM brand_accounts WHERE brand_id = $1)
        ORDER BY account_id
        {LOCK}",
        "FOR UPDATE"
    );
    let _: Vec<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(brand_id).fetch_all(c))?;
    Ok(())
}

/// Returns the job that syncs an account now.
fn sync_now(tx: &Tx, account_id: i64, workspace_id: i64, trace: Option<&str>) -> NewJob {
    NewJob::new(JobKind::SyncInbox, account_id, tx.now)
        .lane(Lane::Account(account_id))
        .workspace(workspace_id)
        .trace(trace.map(str::to_owned))
}

/// Starts the syncs of an account that was connected.
pub async fn start(tx: &mut Tx, account_id: i64) -> Result<()> {
    const SQL: &str = "
        INSERT INTO inbox_syncs (account_id, next_sync_at, created_at, cursors)
        VALUES ($1, $2, $2, '{}')
        ON CONFLICT (account_id)
        DO UPDATE SET next_sync_at = excluded.next_sync_at";
    let now = tx.now;
    execute!(tx, SQL, account_id, now)?;
    Ok(())
}

/// Syncs an account immediately, or if a sync was requested shortly before, after a part of its platform's `interval`.
pub async fn request(
    tx: &mut Tx,
    account_id: i64,
    workspace_id: i64,
    interval: TimeDelta,
    trace: Option<&str>,
) -> Result<()> {
    const SQL: &str = "UPDATE inbox_syncs SET next_sync_at = $2, requested_at = $3 WHERE account_id = $1";
    let Some(sync) = lock(tx, account_id).await? else { return Ok(()) };
    let (now, pause) = (tx.now, interval / REQUESTS_PER_INTERVAL);
    let at = match sync.requested_at {
        // A requested sync is waiting. The clock may have been ahead.
        Some(waiting) if waiting > now => waiting.min(now + pause),
        Some(last) => now.max(last + pause),
        None => now,
    };
    if at > now {
        let next = sync.next_sync_at.map_or(at, |next| next.min(at));
        execute!(tx, SQL, account_id, next, at)?;
        return Ok(());
    }
    let next = now + NEXT_SYNC;
    execute!(tx, SQL, account_id, next, at)?;
    let job = sync_now(tx, account_id, workspace_id, trace);
    jobs::run_now(tx, &job).await
}

/// Enqueues a job for each active account that is due, at most `limit`, the longest overdue first. Returns how many
/// were due. Accounts of a workspace whose plan does not include the inbox, or whose storage is full, are not synced.
pub async fn enqueue_due(tx: &mut Tx, limit: i64, plans: &Plans) -> Result<usize> {
    // SQLite has no `UPDATE` in `WITH`, so `RETURNING` looks the account up.
    let sql = tx.for_engine(
        "
            WITH due AS MATERIALIZED (
                SELECT account_id
                FROM inbox_syncs
                WHERE next_sync_at <= $1
                ORDER BY next_sync_at
                LIMIT (SELECT $2)
                FOR UPDATE SKIP LOCKED
            ),
            moved AS (
                UPDATE inbox_syncs
                SET next_sync_at = $3
                WHERE account_id IN (SELECT account_id FROM due WHERE account_id = account_id + 0)
                RETURNING account_id
            )
            SELECT a.id, a.workspace_id, a.status,
                (SELECT w.plan FROM workspaces w WHERE w.id = a.workspace_id),
                coalesce((SELECT s.bytes FROM storage_usage s WHERE s.workspace_id = a.workspace_id), 0),
                coalesce((SELECT s.texts FROM storage_usage s WHERE s.workspace_id = a.workspace_id), 0)
            FROM moved
            JOIN social_accounts a ON a.id = moved.account_id",
        "
            UPDATE inbox_syncs
            SET next_sync_at = $3
            WHERE account_id IN (
                SELECT account_id
                FROM inbox_syncs
                WHERE next_sync_at <= $1
                ORDER BY next_sync_at
                LIMIT $2
            )
            RETURNING account_id,
                (SELECT a.workspace_id FROM social_accounts a WHERE a.id = inbox_syncs.account_id),
                (SELECT a.status FROM social_accounts a WHERE a.id = inbox_syncs.account_id),
                (
                    SELECT w.plan
                    FROM social_accounts a
                    JOIN workspaces w ON w.id = a.workspace_id
                    WHERE a.id = inbox_syncs.account_id
                ),
                coalesce((
                    SELECT s.bytes
                    FROM social_accounts a
                    JOIN storage_usage s ON s.workspace_id = a.workspace_id
                    WHERE a.id = inbox_syncs.account_id
                ), 0),
                coalesce((
                    SELECT s.texts
                    FROM social_accounts a
                    JOIN storage_usage s ON s.workspace_id = a.workspace_id
                    WHERE a.id = inbox_syncs.account_id
                ), 0)",
    );
    let (now, next) = (tx.now, tx.now + NEXT_SYNC);
    let due: Vec<(i64, i64, AccountStatus, String, i64, i64)> =
        run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).bind(next).fetch_all(c))?;
    for &(id, workspace, status, ref plan, files, texts) in &due {
        let stored = StorageUsage { files, texts };
        let may_read = |plan: &Plan| plan.has(Feature::Inbox) && plan.has_room_for_texts(stored);
        if status == AccountStatus::Active && plans.get(plan).is_some_and(may_read) {
            let job = sync_now(tx, id, workspace, None);
            jobs::enqueue(tx, &job).await?;
        }
    }
    Ok(due.len())
}

/// Stores the cursors of the streams. The caller has locked the row.
pub async fn set_cursors(tx: &mut Tx, account_id: i64, cursors: &Cursors) -> Result<()> {
    execute!(tx, "UPDATE inbox_syncs SET cursors = $2 WHERE account_id = $1", account_id, Json(cursors))?;
    Ok(())
}

/// Stores the streams with which the next sync continues. The caller has locked the row.
pub async fn set_unfinished(tx: &mut Tx, account_id: i64, streams: &[String]) -> Result<()> {
    execute!(tx, "UPDATE inbox_syncs SET unfinished = $2 WHERE account_id = $1", account_id, Json(streams))?;
    Ok(())
}

/// Records the end of a complete sync. `note` tells what the platform does not permit the account to read. `next` is
/// the time of the next sync, or `None` if the platform has no inbox.
pub async fn end(tx: &mut Tx, account_id: i64, note: Option<&Failure>, next: Option<DateTime<Utc>>) -> Result<()> {
    const SQL: &str = "
        UPDATE inbox_syncs
        SET last_error = $2, next_sync_at = $3, failures = 0, synced_at = $4, unfinished = '[]'
        WHERE account_id = $1";
    let now = tx.now;
    execute!(tx, SQL, account_id, note.map(Json), next, now)?;
    Ok(())
}

/// Records the end of a sync that failed, at least in part.
pub async fn fail(tx: &mut Tx, account_id: i64, error: &Failure, next: Option<DateTime<Utc>>) -> Result<()> {
    const SQL: &str = "
        UPDATE inbox_syncs
        SET last_error = $2, next_sync_at = $3, failures = failures + 1, unfinished = '[]'
        WHERE account_id = $1";
    execute!(tx, SQL, account_id, Json(error), next)?;
    Ok(())
}

/// Returns the earliest times since which active accounts have not been synced completely: one per platform and plan,
/// without the plans that do not include the inbox.
pub async fn oldest(conn: &mut Conn, plans: &Plans) -> Result<Vec<(Platform, DateTime<Utc>)>> {
    const SQL: &str = "
        SELECT a.platform, w.plan, min(coalesce(s.synced_at, s.created_at))
        FROM inbox_syncs s
        JOIN social_accounts a ON a.id = s.account_id AND a.status IN ('active')
        JOIN workspaces w ON w.id = a.workspace_id
        WHERE s.next_sync_at IS NOT NULL
        GROUP BY a.platform, w.plan";
    let found: Vec<(Platform, String, DateTime<Utc>)> = run!(conn, c => sqlx::query_as(SQL).fetch_all(c))?;
    let synced = found.into_iter().filter(|(_, plan, _)| plans.include(plan, Feature::Inbox));
    Ok(synced.map(|(platform, _, at)| (platform, at)).collect())
}
