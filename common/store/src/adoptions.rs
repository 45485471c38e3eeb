//! Platform ids that were found by text and time, and the posts or replies to which they are assigned.

use crier_domain::platform::Platform;

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// The post or reply for which an id is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopter {
    /// A target's id.
    Target(i64),
    /// The id of a target whose next part of a thread is searched.
    Part(i64),
    /// A target's id.
    FirstComment(i64),
    /// A message's id.
    Message(i64),
}

/// An account at its platform. Several workspaces may have connected it.
pub type ExternalAccount<'a> = (Platform, &'a str);

/// Makes other searches for ids of the account wait until the end of the transaction (on SQLite there is one writer
/// anyway). It is the last lock that a transaction takes, which prevents deadlocks.
pub async fn lock(tx: &mut Tx, (platform, external_id): ExternalAccount<'_>) -> Result<()> {
    if tx.is_postgres() {
        let name = format!("adoptions:{platform}:{external_id}");
        execute!(tx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name)?;
    }
    Ok(())
}

/// Returns the ids of an account's rows, one per workspace that has connected it. Scans all accounts, but is called
/// only after a lost response.
pub async fn rows_of(conn: &mut Conn, (platform, external_id): ExternalAccount<'_>) -> Result<Vec<i64>> {
    const SQL: &str = "SELECT id FROM social_accounts WHERE platform = $1 AND external_id = $2";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(platform).bind(external_id).fetch_all(c))?)
}

/// Returns whether an id belongs to another post or reply on one of these accounts.
pub async fn is_taken(conn: &mut Conn, accounts: &[i64], adopter: Adopter, external_id: &str) -> Result<bool> {
    const TARGET: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM post_targets
            WHERE account_id = $1
                AND external_id = $2
                AND id <> $3
        )";
    // Copies that a sync has read (`received`) are not our replies. `CROSS JOIN` fixes the order of the join on SQLite,
    // which otherwise reads all messages of the account.
    const MESSAGE: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM brand_accounts b
            CROSS JOIN messages m
            WHERE b.account_id = $1
                AND m.brand_id = b.brand_id
                AND m.account_id = $1
                AND m.external_id = $2
                AND m.id <> $3
                AND m.status <> 'received'
        )";
    // Reads all posts of the account.
    const PART_PG: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM post_targets
            WHERE account_id = $1
                AND (
                    published_parts <> '[]'
                        AND published_parts @> jsonb_build_array(jsonb_build_object('external_id', CAST($2 AS text)))
                    OR status IN ('pending', 'publishing', 'failed') AND marker ->> 'adopted' = $2 AND id <> $3
                )
        )";
    const PART_SQLITE: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM post_targets
            WHERE account_id = $1
                AND (
                    published_parts <> '[]'
                        AND EXISTS (SELECT 1 FROM json_each(published_parts) WHERE value ->> 'external_id' = $2)
                    OR status IN ('pending', 'publishing', 'failed') AND marker ->> 'adopted' = $2 AND id <> $3
                )
        )";
    const COMMENT: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM first_comments c
            JOIN post_targets t ON t.id = c.target_id
            WHERE c.external_id = $2
                AND t.account_id = $1
                AND c.target_id <> $3
        )";
    let part = conn.for_engine(PART_PG, PART_SQLITE);
    let own = |is_own: bool, id: i64| if is_own { id } else { 0 };
    let (Adopter::Target(id) | Adopter::Part(id) | Adopter::FirstComment(id) | Adopter::Message(id)) = adopter;
    let searches = [
        (TARGET, own(matches!(adopter, Adopter::Target(_)), id)),
        (COMMENT, own(matches!(adopter, Adopter::FirstComment(_)), id)),
        (MESSAGE, own(matches!(adopter, Adopter::Message(_)), id)),
        (part, own(matches!(adopter, Adopter::Part(_)), id)),
    ];
    for account in accounts {
        for (sql, own) in searches {
            let is_taken: bool =
                run!(conn, c => sqlx::query_scalar(sql).bind(account).bind(external_id).bind(own).fetch_one(c))?;
            if is_taken {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns whether a call that began after a target's, for another post with the same text on one of these accounts, has
/// an unknown outcome or is being made. Reads all posts of the accounts.
pub async fn has_later_call(conn: &mut Conn, accounts: &[i64], target_id: i64) -> Result<bool> {
    // `CROSS JOIN` fixes the order of the join on SQLite.
    const SQL: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM post_targets own
            CROSS JOIN posts own_post
            CROSS JOIN post_targets later
            CROSS JOIN posts later_post
            WHERE own.id = $1
                AND own_post.id = own.post_id
                AND later.account_id = $2
                AND later.status = 'publishing'
                AND later.call_started_at > own.call_started_at
                AND later_post.id = later.post_id
                AND coalesce(later.content, later_post.content) = coalesce(own.content, own_post.content)
        )";
    for account in accounts {
        let has_later: bool = run!(conn, c => sqlx::query_scalar(SQL).bind(target_id).bind(account).fetch_one(c))?;
        if has_later {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Stores the id of a post or reply that is unfinished. If a sync has already read the reply, deletes that copy.
pub async fn claim(tx: &mut Tx, adopter: Adopter, external_id: &str) -> Result<()> {
    const TARGET: &str = "UPDATE post_targets SET external_id = $2 WHERE id = $1";
    // The target's id is that of its first part. The marker is that of the part until the part is stored.
    const PART_PG: &str = "
        UPDATE post_targets
        SET marker = jsonb_set(marker, '{adopted}', to_jsonb(CAST($2 AS text)))
        WHERE id = $1";
    const PART_SQLITE: &str = "UPDATE post_targets SET marker = json_set(marker, '$.adopted', $2) WHERE id = $1";
    const COMMENT: &str = "UPDATE first_comments SET external_id = $2 WHERE target_id = $1";
    const COPY: &str = "
        DELETE FROM messages
        WHERE external_id = $2
            AND status = 'received'
            AND id <> $1
            AND (brand_id, account_id) = (SELECT brand_id, account_id FROM messages WHERE id = $1)";
    const MESSAGE: &str = "UPDATE messages SET external_id = $2 WHERE id = $1";
    match adopter {
        Adopter::Target(id) => execute!(tx, TARGET, id, external_id)?,
        Adopter::Part(id) => {
            let sql = tx.for_engine(PART_PG, PART_SQLITE);
            execute!(tx, sql, id, external_id)?
        }
        Adopter::FirstComment(id) => execute!(tx, COMMENT, id, external_id)?,
        Adopter::Message(id) => {
            execute!(tx, COPY, id, external_id)?;
            execute!(tx, MESSAGE, id, external_id)?
        }
    };
    Ok(())
}
