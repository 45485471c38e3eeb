//! Ids of a platform that are found by text and time, and whose post or reply they are.

use crier_domain::platform::Platform;

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// The post or the reply that an id is found for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopter {
    /// A target's id.
    Target(i64),
    /// A message's id.
    Message(i64),
}

/// An account at its platform: several workspaces may have connected it.
pub type ExternalAccount<'a> = (Platform, &'a str);

/// Holds off others that look for ids of the account, until the end of the transaction (on SQLite there is one writer
/// anyway). It is the last lock that a transaction takes, which prevents deadlocks.
pub async fn lock(tx: &mut Tx, (platform, external_id): ExternalAccount<'_>) -> Result<()> {
    if tx.is_postgres() {
        let name = format!("adoptions:{platform}:{external_id}");
        execute!(tx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name)?;
    }
    Ok(())
}

/// Returns whether an id belongs to another post or reply.
pub async fn is_taken(
    conn: &mut Conn,
    (platform, account): ExternalAccount<'_>,
    adopter: Adopter,
    external_id: &str,
) -> Result<bool> {
    // Copies that a sync has read (`received`) are no replies of ours.
    const SQL: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM social_accounts a
            JOIN post_targets t ON t.account_id = a.id
            WHERE a.platform = $1
                AND a.external_id = $2
                AND t.external_id = $3
                AND t.id <> $4
        ) OR EXISTS (
            SELECT 1
            FROM social_accounts a
            JOIN brand_accounts b ON b.account_id = a.id
            JOIN messages m ON m.brand_id = b.brand_id AND m.account_id = a.id
            WHERE a.platform = $1
                AND a.external_id = $2
                AND m.external_id = $3
                AND m.status <> 'received'
                AND m.id <> $5
        )";
    let (target, message) = match adopter {
        Adopter::Target(id) => (id, 0),
        Adopter::Message(id) => (0, id),
    };
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(platform).bind(account).bind(external_id).bind(target)
        .bind(message).fetch_one(c))?)
}

/// Stores the id of a post or reply that has not ended. A sync may have read the reply before: that copy goes.
pub async fn claim(tx: &mut Tx, adopter: Adopter, external_id: &str) -> Result<()> {
    const TARGET: &str = "UPDATE post_targets SET external_id = $2 WHERE id = $1";
    const COPY: &str = "
        DELETE FROM messages
        WHERE external_id = $2
            AND status = 'received'
            AND id <> $1
            AND (brand_id, account_id) = (SELECT brand_id, account_id FROM messages WHERE id = $1)";
    const MESSAGE: &str = "UPDATE messages SET external_id = $2 WHERE id = $1";
    match adopter {
        Adopter::Target(id) => execute!(tx, TARGET, id, external_id)?,
        Adopter::Message(id) => {
            execute!(tx, COPY, id, external_id)?;
            execute!(tx, MESSAGE, id, external_id)?
        }
    };
    Ok(())
}
