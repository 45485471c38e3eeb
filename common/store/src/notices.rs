//! Problems that wait for the next email to a user, and their number for the navigation of the console.

use chrono::{DateTime, Utc};
use crier_domain::notice::{DAILY_DELAY, HOURLY_DELAY, MIN_NOTICE_INTERVAL, NoticeFrequency, NoticeKind};
use serde_json::json;

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// Problems whose texts are read by one statement. A user may have many more of them than an email lists.
const READ_TOGETHER: usize = 1_000;

/// A problem in an email.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct NoticeRow {
    pub kind: NoticeKind,
    /// The brand with the pages on which the user can act. An account may belong to several brands, and a webhook
    /// belongs to none: then it is the first one.
    pub brand_id: i64,
    pub brand_name: String,
    /// The account, the webhook, the feed or the post.
    pub subject_id: i64,
    /// The name of the account or of the feed, the URL of the webhook, or the beginning of the post's text.
    pub title: String,
    /// Why a feed failed, or why the webhook was disabled.
    pub reason: Option<String>,
}

/// The user who gets an email about problems.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Recipient {
    pub email: String,
    pub name: String,
    pub notice_frequency: NoticeFrequency,
    /// The time of the last email.
    pub notices_mailed_at: Option<DateTime<Utc>>,
}

impl Recipient {
    /// Returns whether the last email is recent, so that the next one must wait. A time in the future is that of a
    /// process whose clock was ahead.
    pub fn has_recent_mail(&self, now: DateTime<Utc>) -> bool {
        self.notices_mailed_at.is_some_and(|at| at > now - MIN_NOTICE_INTERVAL && at <= now + MIN_NOTICE_INTERVAL)
    }
}

/// Adds a problem for the members of a brand who can act on it, unless they get no emails. One that already waits for
/// the next email is not added again. Runs in the transaction that causes the problem.
pub async fn add(tx: &mut Tx, kind: NoticeKind, brand_id: i64, subject_id: i64) -> Result<()> {
    const SQL: &str = "
        INSERT INTO notices (user_id, kind, subject_id, created_at)
        SELECT m.user_id, $1, $2, $4
        FROM brand_members m
        JOIN users u ON u.id = m.user_id
        WHERE m.brand_id = $3
            AND u.notice_frequency <> 'never'
            AND (m.role IN ('owner', 'admin') OR m.role = 'editor' AND NOT $5)
        ORDER BY m.user_id
        ON CONFLICT DO NOTHING";
    let (now, is_for_managers) = (tx.now, kind.is_for_managers());
    execute!(tx, SQL, kind, subject_id, brand_id, now, is_for_managers)?;
    Ok(())
}

/// Adds a problem of an account, as [`add`] does, for the members of all brands with the account who can reconnect it.
pub async fn add_for_account(tx: &mut Tx, kind: NoticeKind, account_id: i64) -> Result<()> {
    const SQL: &str = "
        INSERT INTO notices (user_id, kind, subject_id, created_at)
        SELECT u.id, $1, $2, $3
        FROM users u
        WHERE u.notice_frequency <> 'never'
            AND u.id IN (
                SELECT m.user_id
                FROM brand_accounts b
                JOIN brand_members m ON m.brand_id = b.brand_id
                WHERE b.account_id = $2 AND m.role IN ('owner', 'admin', 'editor')
            )
        ORDER BY u.id
        ON CONFLICT DO NOTHING";
    let now = tx.now;
    execute!(tx, SQL, kind, account_id, now)?;
    Ok(())
}

/// Adds a disabled webhook, as [`add`] does, for its owner.
pub async fn add_for_webhook(tx: &mut Tx, webhook_id: i64) -> Result<()> {
    const SQL: &str = "
        INSERT INTO notices (user_id, kind, subject_id, created_at)
        SELECT u.id, $1, w.id, $3
        FROM webhooks w
        JOIN users u ON u.id = w.user_id
        WHERE w.id = $2 AND u.notice_frequency <> 'never'
        ON CONFLICT DO NOTHING";
    let now = tx.now;
    execute!(tx, SQL, NoticeKind::WebhookDisabled, webhook_id, now)?;
    Ok(())
}

/// Returns the users for whom an email is due, at most `limit`. Ignores times in the future: those of a process whose
/// clock was ahead would postpone emails by as much.
pub async fn due(conn: &mut Conn, now: DateTime<Utc>, limit: i64) -> Result<Vec<i64>> {
    // Reads only what may be due. For users who get emails immediately, any of their problems is enough. `ORDER BY` with a
    // limit, which may be hidden, makes both engines use the indexes, also without statistics.
    const SQL: &str = "
        SELECT DISTINCT found.user_id
        FROM (
            SELECT * FROM (
                SELECT user_id, created_at
                FROM notices
                WHERE created_at <= $3
                ORDER BY created_at
                LIMIT (SELECT $7)
            ) AS collected
            UNION ALL
            SELECT * FROM (
                SELECT user_id, created_at
                FROM notices
                WHERE created_at > $6
                ORDER BY created_at
                LIMIT (SELECT $7)
            ) AS misdated
            UNION ALL
            SELECT i.id, (
                SELECT n.created_at
                FROM notices n
                WHERE n.user_id = i.id
                ORDER BY n.kind, n.subject_id
                LIMIT 1
            )
            FROM users i
            WHERE i.notice_frequency = 'immediately'
        ) AS found
        JOIN users u ON u.id = found.user_id
        WHERE (u.notices_mailed_at IS NULL OR u.notices_mailed_at <= $1 OR u.notices_mailed_at > $6)
            AND (
                found.created_at > $6
                OR found.created_at <= CASE u.notice_frequency
                    WHEN 'immediately' THEN $2
                    WHEN 'hourly' THEN $3
                    ELSE $4
                END
            )
        ORDER BY found.user_id
        LIMIT $5";
    let (interval, hour, day) = (now - MIN_NOTICE_INTERVAL, now - HOURLY_DELAY, now - DAILY_DELAY);
    let ahead = now + MIN_NOTICE_INTERVAL;
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(interval).bind(now).bind(hour).bind(day).bind(limit).bind(ahead)
        .bind(i64::MAX).fetch_all(c))?)
}

/// Locks a user's row until the end of the transaction. Returns whom to send the email. `None` if the user does not
/// exist.
pub async fn lock_recipient(tx: &mut Tx, user_id: i64) -> Result<Option<Recipient>> {
    const SQL: &str = "
        UPDATE users
        SET name = name
        WHERE id = $1
        RETURNING email, name, notice_frequency, notices_mailed_at";
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(user_id).fetch_optional(c))?)
}

/// Deletes all problems that wait for a user's email. Returns those that still exist and on which the user can still act,
/// at most `limit`, in the order of the kinds, and the number of all of them. The caller has locked the user's row.
pub async fn take(tx: &mut Tx, user_id: i64, limit: usize) -> Result<(Vec<NoticeRow>, usize)> {
    const DELETE: &str = "DELETE FROM notices WHERE user_id = $1 RETURNING kind, subject_id";
    let mut taken: Vec<(NoticeKind, i64)> = run!(tx, c => sqlx::query_as(DELETE).bind(user_id).fetch_all(c))?;
    taken.sort_unstable();
    let sql = tx.for_engine(EXISTING_PG, EXISTING_SQLITE);
    let (mut first, mut count) = (Vec::new(), 0);
    for part in taken.chunks(READ_TOGETHER) {
        let part = json!(part).to_string();
        let mut found: Vec<NoticeRow> = run!(tx, c => sqlx::query_as(sql).bind(&part).bind(user_id).fetch_all(c))?;
        found.sort_unstable_by_key(|row| (row.kind, row.brand_id, row.subject_id));
        count += found.len();
        first.extend(found.into_iter().take(limit - first.len()));
    }
    Ok((first, count))
}

/// Defines the statement that returns the problems of a list that still exist and on which the user can still act, as in
/// [`add`]. `$taken`: the list as rows of `kind` and `subject_id`.
macro_rules! existing_sql {
    ($taken:literal) => {
        concat!(
            "
            WITH taken AS (",
            $taken,
            "),
            found AS (
                SELECT t.kind, p.brand_id, t.subject_id, substr(p.content, 1, 100) AS title,
                    CAST(NULL AS text) AS reason
                FROM taken t
                JOIN posts p ON p.id = t.subject_id AND p.deleted_at IS NULL
                WHERE t.kind = 'post_failed' AND p.status IN ('failed', 'partially_published', 'publishing')
                    OR t.kind = 'post_pending' AND p.status = 'pending_approval'
                    OR t.kind = 'post_rejected' AND EXISTS (
                        SELECT 1
                        FROM post_targets r
                        WHERE r.post_id = p.id AND r.status = 'published' AND r.error IS NOT NULL
                    )
                UNION ALL
                SELECT t.kind, f.brand_id, t.subject_id, f.name,
                    CASE WHEN t.kind = 'feed_failing' THEN f.last_error ELSE f.auto_post_problem END
                FROM taken t
                JOIN feeds f ON f.id = t.subject_id
                WHERE t.kind = 'feed_failing' AND f.status = 'failing'
                    OR t.kind = 'feed_not_posted' AND f.auto_post_problem IS NOT NULL
                UNION ALL
                SELECT t.kind, (
                    SELECT min(b.brand_id)
                    FROM brand_accounts b
                    JOIN brand_members m ON m.brand_id = b.brand_id AND m.user_id = $2
                    WHERE b.account_id = a.id AND m.role IN ('owner', 'admin', 'editor')
                ), t.subject_id, a.name, CAST(NULL AS text)
                FROM taken t
                JOIN social_accounts a ON a.id = t.subject_id
                WHERE t.kind = 'account_expired' AND a.status = 'expired'
                    OR t.kind = 'account_expiring' AND a.status = 'active' AND a.warnings > 0
                UNION ALL
                SELECT t.kind, (
                    SELECT min(m.brand_id)
                    FROM brand_members m
                    WHERE m.user_id = $2
                ), t.subject_id, w.url, w.disabled_reason
                FROM taken t
                JOIN webhooks w ON w.id = t.subject_id
                WHERE t.kind = 'webhook_disabled' AND w.user_id = $2 AND NOT w.is_active
                    AND w.disabled_reason IS NOT NULL
            )
            SELECT f.kind, f.brand_id, b.name AS brand_name, f.subject_id, f.title, f.reason
            FROM found f
            JOIN brands b ON b.id = f.brand_id
            JOIN brand_members m ON m.brand_id = f.brand_id AND m.user_id = $2
            WHERE m.role IN ('owner', 'admin')
                OR m.role = 'editor' AND f.kind <> 'post_pending'
                OR f.kind = 'webhook_disabled'"
        )
    };
}

const EXISTING_PG: &str = existing_sql!(
    "
                SELECT v ->> 0 AS kind, (v ->> 1)::bigint AS subject_id
                FROM (SELECT value AS v FROM json_array_elements($1::json)) AS list"
);
const EXISTING_SQLITE: &str = existing_sql!(
    "
                SELECT value ->> 0 AS kind, value ->> 1 AS subject_id
                FROM json_each($1)"
);

/// Records that an email was sent to a user. The caller has locked the user's row.
pub async fn mark_mailed(tx: &mut Tx, user_id: i64) -> Result<()> {
    let now = tx.now;
    execute!(tx, "UPDATE users SET notices_mailed_at = $2 WHERE id = $1", user_id, now)?;
    Ok(())
}

/// Returns how often a user gets emails about problems.
pub async fn frequency(conn: &mut Conn, user_id: i64) -> Result<Option<NoticeFrequency>> {
    const SQL: &str = "SELECT notice_frequency FROM users WHERE id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(user_id).fetch_optional(c))?)
}

/// Sets how often a user gets emails about problems. With `never`, those that wait for the next one are forgotten.
pub async fn set_frequency(tx: &mut Tx, user_id: i64, frequency: NoticeFrequency) -> Result<()> {
    execute!(tx, "UPDATE users SET notice_frequency = $2 WHERE id = $1", user_id, frequency)?;
    if frequency == NoticeFrequency::Never {
        execute!(tx, "DELETE FROM notices WHERE user_id = $1", user_id)?;
    }
    Ok(())
}

/// Returns how many records of a brand need the user's attention, at most `limit` of each kind: failed posts, posts that
/// the user can approve, expired accounts, feeds with a problem, and disabled webhooks of the user.
pub async fn count_problems(
    conn: &mut Conn,
    brand_id: i64,
    user_id: i64,
    can_approve: bool,
    limit: i64,
) -> Result<i64> {
    const SQL: &str = "
        SELECT count(*)
        FROM (
            SELECT * FROM (
                SELECT 1 FROM posts WHERE brand_id = $1 AND status = 'failed' AND deleted_at IS NULL LIMIT $4
            ) AS failed
            UNION ALL
            SELECT * FROM (
                SELECT 1
                FROM posts
                WHERE brand_id = $1 AND status = 'partially_published' AND deleted_at IS NULL
                LIMIT $4
            ) AS partial
            UNION ALL
            SELECT * FROM (
                SELECT 1
                FROM posts
                WHERE brand_id = $1 AND status = 'pending_approval' AND deleted_at IS NULL AND $3
                LIMIT $4
            ) AS pending
            UNION ALL
            SELECT * FROM (
                SELECT 1
                FROM brand_accounts b
                JOIN social_accounts a ON a.id = b.account_id
                WHERE b.brand_id = $1 AND a.status = 'expired'
                LIMIT $4
            ) AS expired
            UNION ALL
            SELECT 1
            FROM feeds
            WHERE brand_id = $1 AND (status = 'failing' OR auto_post_problem IS NOT NULL)
            UNION ALL
            SELECT 1
            FROM webhooks
            WHERE user_id = $2 AND NOT is_active AND disabled_reason IS NOT NULL
        ) AS problems";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).bind(user_id).bind(can_approve).bind(limit)
        .fetch_one(c))?)
}
