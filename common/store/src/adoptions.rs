//! Platform ids that were found by text and time, and the posts or replies to which they are assigned.

use crier_domain::platform::Platform;

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// The post or reply for which an id is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopter {
    /// A target's id.
    Target(i64),
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
    let (target, message) = match adopter {
        Adopter::Target(id) => (id, 0),
        Adopter::Message(id) => (0, id),
    };
    for account in accounts {
        for (sql, own) in [(TARGET, target), (MESSAGE, message)] {
            let is_taken: bool =
                run!(conn, c => sqlx::query_scalar(sql).bind(account).bind(external_id).bind(own).fetch_one(c))?;
            if is_taken {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Stores the id of a post or reply that is unfinished. If a sync has already read the reply, deletes that copy.
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
