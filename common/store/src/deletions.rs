//! Deletes the data of a customer, a brand or a workspace, while Crier runs.
//!
//! 1. [`close_brand`] and [`close_workspace`] end all access in one transaction. Without its accounts, a brand begins no
//!    further call to a platform.
//! 2. [`delete_some`] and [`delete_events`] delete what can be much, in short transactions.
//! 3. [`delete_brand`] and [`delete_workspace`] delete the rest, by foreign keys and triggers. The scheduler then finds
//!    the files and uploads, which belong to no brand any more, and deletes them from the storage.
//!
//! All steps can be repeated, so an interrupted deletion continues when it is started again. The order matters for the
//! count of stored texts: the triggers find the workspace of a text by its brand.

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::locking_sql;
use super::{Conn, Result, Tx, accounts};

/// The maximum number of posts per transaction. Each has targets, attempts, metrics and jobs.
const POSTS: i64 = 200;
/// The maximum number of events that a transaction reads.
const EVENTS: i64 = 1_000;

/// What belongs to a brand or a workspace, for the operator's question.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct Contents {
    pub name: String,
    pub brands: i64,
    pub posts: i64,
    pub accounts: i64,
    /// The members of the brand, or the users of the workspace.
    pub users: i64,
    pub files: i64,
}

/// Returns what belongs to a brand. Returns `None` if the brand does not exist.
pub async fn brand_contents(conn: &mut Conn, brand_id: i64) -> Result<Option<Contents>> {
    const SQL: &str = "
        SELECT b.name, CAST(1 AS bigint) AS brands,
            (SELECT count(*) FROM posts p WHERE p.brand_id = b.id AND p.deleted_at IS NULL) AS posts,
            (SELECT count(*) FROM brand_accounts a WHERE a.brand_id = b.id) AS accounts,
            (SELECT count(*) FROM brand_members m WHERE m.brand_id = b.id) AS users,
            (SELECT count(*) FROM files f WHERE f.brand_id = b.id AND f.state <> 'doomed') AS files
        FROM brands b
        WHERE b.id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).fetch_optional(c))?)
}

/// Returns what belongs to a workspace. Returns `None` if the workspace does not exist.
pub async fn workspace_contents(conn: &mut Conn, workspace_id: i64) -> Result<Option<Contents>> {
    const SQL: &str = "
        SELECT w.name,
            (SELECT count(*) FROM brands b WHERE b.workspace_id = w.id) AS brands,
            (
                SELECT count(*)
                FROM brands b
                JOIN posts p ON p.brand_id = b.id AND p.deleted_at IS NULL
                WHERE b.workspace_id = w.id
            ) AS posts,
            (SELECT count(*) FROM social_accounts a WHERE a.workspace_id = w.id) AS accounts,
            (SELECT count(*) FROM users u WHERE u.workspace_id = w.id) AS users,
            (
                SELECT count(*)
                FROM brands b
                JOIN files f ON f.brand_id = b.id AND f.state <> 'doomed'
                WHERE b.workspace_id = w.id
            ) AS files
        FROM workspaces w
        WHERE w.id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(workspace_id).fetch_optional(c))?)
}

/// Returns the brands of a workspace.
pub async fn brands(conn: &mut Conn, workspace_id: i64) -> Result<Vec<i64>> {
    const SQL: &str = "SELECT id FROM brands WHERE workspace_id = $1 ORDER BY id";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).fetch_all(c))?)
}

/// Disconnects the accounts of a brand, and removes its members and everything that sends emails or adds accounts. Calls
/// to platforms that have begun continue.
pub async fn close_brand(tx: &mut Tx, brand_id: i64) -> Result<()> {
    // First, because a person who is connecting an account has locked the authorization.
    execute!(tx, "DELETE FROM authorizations WHERE brand_id = $1", brand_id)?;
    disconnect_accounts(tx, brand_id).await?;
    execute!(tx, "DELETE FROM invitations WHERE brand_id = $1", brand_id)?;
    execute!(tx, "DELETE FROM brand_members WHERE brand_id = $1", brand_id)?;
    const SCHEDULES: &str =
        "DELETE FROM report_schedules WHERE report_id IN (SELECT id FROM reports WHERE brand_id = $1)";
    execute!(tx, SCHEDULES, brand_id)?;
    Ok(())
}

async fn disconnect_accounts(tx: &mut Tx, brand_id: i64) -> Result<()> {
    const SQL: &str = "SELECT account_id FROM brand_accounts WHERE brand_id = $1 ORDER BY account_id";
    let ids: Vec<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_all(c))?;
    for id in ids {
        accounts::disconnect(tx, brand_id, id).await?;
    }
    Ok(())
}

/// Closes the brands of a workspace, and deletes the keys of its users: API keys, sessions and connected applications.
pub async fn close_workspace(tx: &mut Tx, workspace_id: i64) -> Result<()> {
    const KEYS: &str = "DELETE FROM api_keys WHERE user_id IN (SELECT id FROM users WHERE workspace_id = $1)";
    const LINKS: &str = "DELETE FROM sign_in_links WHERE user_id IN (SELECT id FROM users WHERE workspace_id = $1)";
    for brand_id in brands(tx, workspace_id).await? {
        close_brand(tx, brand_id).await?;
    }
    execute!(tx, KEYS, workspace_id)?;
    execute!(tx, LINKS, workspace_id)?;
    Ok(())
}

/// Whether no run of a post's jobs may be calling a platform. The worker of an expired lease is dead. Counted as in
/// [`super::posts::purge`]. `|| ''` keeps Postgres from reading all running jobs for each target.
const POST_IS_FREE: &str = "(
        SELECT coalesce(sum((
            SELECT count(*)
            FROM jobs j
            WHERE j.kind IN ('publish_target', 'publish_comment', 'unpublish_target')
                AND j.subject_id = t.id
                AND j.state || '' = 'running'
                AND j.state IN ('scheduled', 'ready', 'running')
                AND j.lease_until > $2
        )), 0)
        FROM post_targets t
        WHERE t.post_id = p.id
    ) = 0";

/// Deletes conversations, except those with a reply whose run may be calling a platform.
const CONVERSATIONS: &str = "
    DELETE FROM conversations
    WHERE id IN (
        SELECT c.id
        FROM conversations c
        WHERE c.brand_id = $1
            AND (
                SELECT coalesce(sum((
                    SELECT count(*)
                    FROM jobs j
                    WHERE j.kind = 'send_reply'
                        AND j.subject_id = m.id
                        AND j.state || '' = 'running'
                        AND j.state IN ('scheduled', 'ready', 'running')
                        AND j.lease_until > $2
                )), 0)
                FROM messages m
                WHERE m.conversation_id = c.id AND m.status = 'pending'
            ) = 0
        LIMIT 100
    )";

/// Other rows of which a brand can have very many, or whose texts are counted.
const ROWS: [&str; 2] = [
    "DELETE FROM media WHERE id IN (SELECT id FROM media WHERE brand_id = $1 LIMIT 1000)",
    "DELETE FROM media_jobs WHERE id IN (SELECT id FROM media_jobs WHERE brand_id = $1 LIMIT 1000)",
];

/// The same for rows without an ID, on Postgres and on SQLite. With outdated statistics, Postgres would expect one row,
/// and compare each row of the brand with each key of a list. So it finds the rows by their location (`ctid`).
/// `LIMIT (SELECT …)` as in [`list_sql!`].
const ROWS_WITHOUT_ID: [(&str, &str); 3] = [
    (
        "
        DELETE FROM post_words
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM post_words WHERE brand_id = $1 LIMIT (SELECT 5000)))",
        "
        DELETE FROM post_words
        WHERE brand_id = $1 AND (word, post_id) IN (
            SELECT word, post_id
            FROM post_words
            WHERE brand_id = $1
            LIMIT 5000
        )",
    ),
    (
        "
        DELETE FROM post_labels
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM post_labels WHERE brand_id = $1 LIMIT (SELECT 5000)))",
        "
        DELETE FROM post_labels
        WHERE brand_id = $1 AND (label, post_id) IN (
            SELECT label, post_id
            FROM post_labels
            WHERE brand_id = $1
            LIMIT 5000
        )",
    ),
    (
        "
        DELETE FROM conversation_words
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM conversation_words WHERE brand_id = $1 LIMIT (SELECT 5000)))",
        "
        DELETE FROM conversation_words
        WHERE brand_id = $1 AND (word, conversation_id) IN (
            SELECT word, conversation_id
            FROM conversation_words
            WHERE brand_id = $1
            LIMIT 5000
        )",
    ),
];

/// Deletes some rows of a closed brand. Returns how many, or 0 if nothing is left that can be deleted: see
/// [`count_busy`]. A post or a conversation stays while a run may be calling a platform for it, because the run stores
/// there what it has published.
pub async fn delete_some(tx: &mut Tx, brand_id: i64) -> Result<u64> {
    let now = tx.now;
    let posts = delete_posts(tx, brand_id).await?;
    if posts > 0 {
        return Ok(posts);
    }
    let conversations = execute!(tx, CONVERSATIONS, brand_id, now)?;
    if conversations > 0 {
        return Ok(conversations);
    }
    let without_id = ROWS_WITHOUT_ID.map(|(postgres, sqlite)| tx.for_engine(postgres, sqlite));
    for sql in ROWS.into_iter().chain(without_id) {
        let deleted = execute!(tx, sql, brand_id)?;
        if deleted > 0 {
            return Ok(deleted);
        }
    }
    Ok(0)
}

async fn delete_posts(tx: &mut Tx, brand_id: i64) -> Result<u64> {
    let live = locking_sql!(
        tx,
        "SELECT p.id FROM posts p WHERE p.brand_id = $1 AND p.deleted_at IS NULL AND {POST_IS_FREE}
        ORDER BY p.id LIMIT $3 {LOCK}",
        "FOR UPDATE OF p",
        POST_IS_FREE
    );
    // The order of an index on deleted posts, which are few.
    let deleted = locking_sql!(
        tx,
        "SELECT p.id FROM posts p WHERE p.brand_id = $1 AND p.deleted_at IS NOT NULL AND {POST_IS_FREE}
        ORDER BY p.deleted_at LIMIT $3 {LOCK}",
        "FOR UPDATE OF p",
        POST_IS_FREE
    );
    // A run that still uploads files to the platform does not publish a deleted post.
    const HIDE: &str = "UPDATE posts SET deleted_at = $2 WHERE brand_id = $1 AND deleted_at IS NULL";
    let now = tx.now;
    let mut ids: Vec<i64> = run!(tx, c => sqlx::query_scalar(live).bind(brand_id).bind(now).bind(POSTS).fetch_all(c))?;
    if ids.is_empty() {
        execute!(tx, HIDE, brand_id, now)?;
        ids = run!(tx, c => sqlx::query_scalar(deleted).bind(brand_id).bind(now).bind(POSTS).fetch_all(c))?;
    }
    if ids.is_empty() {
        return Ok(0);
    }
    let cancel = list_sql!(
        tx,
        "
        UPDATE jobs
        SET state = 'cancelled', waiting = FALSE, finished_at = $2
        WHERE kind IN ('publish_target', 'publish_comment', 'unpublish_target')
            AND state IN ('scheduled', 'ready')
            AND state IN ('scheduled', 'ready', 'running')
            AND subject_id IN (SELECT id FROM post_targets WHERE post_id",
        ")"
    );
    // A worker may have claimed a job since the posts were selected.
    let delete = list_sql!(tx, "DELETE FROM posts AS p WHERE p.id", "AND {POST_IS_FREE}", POST_IS_FREE);
    let list = id_list(&ids);
    execute!(tx, cancel, &list, now)?;
    Ok(execute!(tx, delete, &list, now)?)
}

/// Returns how many posts and conversations of a brand are left. After [`delete_some`] has returned 0, these are the ones
/// for which a run may be calling a platform.
pub async fn count_busy(conn: &mut Conn, brand_id: i64) -> Result<i64> {
    const SQL: &str = "
        SELECT (SELECT count(*) FROM posts WHERE brand_id = $1 AND deleted_at IS NULL)
            + (SELECT count(*) FROM posts WHERE brand_id = $1 AND deleted_at IS NOT NULL)
            + (SELECT count(*) FROM conversations WHERE brand_id = $1)";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_one(c))?)
}

/// Deletes the events of brands, with their deliveries, among the events after the ID `after`. Returns the ID after which
/// to continue, or `None` at the end. No index finds the events of a brand, so this reads all events in pieces. It ends
/// at the first piece that is not full, because other brands may have new events at any time.
pub async fn delete_events(tx: &mut Tx, brand_ids: &[i64], after: i64) -> Result<Option<i64>> {
    const PIECE: &str =
        "SELECT max(id), count(*) FROM (SELECT id FROM events WHERE id > $1 ORDER BY id LIMIT $2) AS piece";
    let (last, count): (Option<i64>, i64) = run!(tx, c => sqlx::query_as(PIECE).bind(after).bind(EVENTS).fetch_one(c))?;
    if let Some(last) = last {
        let sql = list_sql!(tx, "DELETE FROM events WHERE id > $2 AND id <= $3 AND brand_id", "");
        execute!(tx, sql, id_list(brand_ids), after, last)?;
    }
    Ok(last.filter(|_| count == EVENTS))
}

/// Deletes a closed brand with what [`delete_some`] leaves.
pub async fn delete_brand(tx: &mut Tx, brand_id: i64) -> Result<()> {
    // A request that had begun before the brand was closed may have connected one.
    disconnect_accounts(tx, brand_id).await?;
    execute!(tx, "DELETE FROM brands WHERE id = $1", brand_id)?;
    Ok(())
}

/// Deletes a closed workspace. Its users and brands have been deleted before.
pub async fn delete_workspace(tx: &mut Tx, workspace_id: i64) -> Result<()> {
    execute!(tx, "DELETE FROM workspaces WHERE id = $1", workspace_id)?;
    Ok(())
}
