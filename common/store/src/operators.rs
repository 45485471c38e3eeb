//! Operators: the users who run the installation, and a record of who became one or was removed.

use chrono::{DateTime, Utc};
use crier_domain::brand::User;

use super::db::{execute, run};
use super::{Conn, Result, Tx};

crier_base::text_enum! {
    /// A change of who is an operator.
    pub enum OperatorChange {
        Added = "added",
        Removed = "removed",
        /// The user was deleted.
        Deleted = "deleted",
    }
}

/// A recorded change.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct ChangeRecord {
    pub id: i64,
    pub email: String,
    pub change: String,
    pub created_at: DateTime<Utc>,
}

pub async fn is_operator(conn: &mut Conn, user_id: i64) -> Result<bool> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM users WHERE id = $1 AND is_operator)";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(user_id).fetch_one(c))?)
}

/// Returns the ids of all operators. Locks their rows until the end of the transaction, so that the last two cannot be
/// removed concurrently.
pub async fn lock(tx: &mut Tx) -> Result<Vec<i64>> {
    const SQL: &str = "UPDATE users SET is_operator = TRUE WHERE is_operator RETURNING id";
    Ok(run!(tx, c => sqlx::query_scalar(SQL).fetch_all(c))?)
}

/// Returns the ids of all operators.
pub async fn ids(conn: &mut Conn) -> Result<Vec<i64>> {
    Ok(run!(conn, c => sqlx::query_scalar("SELECT id FROM users WHERE is_operator ORDER BY id").fetch_all(c))?)
}

/// Makes a user an operator or removes the right, and records the change.
pub async fn change(tx: &mut Tx, user: &User, change: OperatorChange) -> Result<()> {
    let now = tx.now;
    let is_operator = change == OperatorChange::Added;
    execute!(tx, "UPDATE users SET is_operator = $2, updated_at = $3 WHERE id = $1", user.id, is_operator, now)?;
    const RECORD: &str = "INSERT INTO operator_changes (email, change, created_at) VALUES ($1, $2, $3)";
    execute!(tx, RECORD, &user.email, change.as_str(), now)?;
    Ok(())
}

/// Returns the recorded changes, newest first.
pub async fn changes(conn: &mut Conn) -> Result<Vec<ChangeRecord>> {
    const SQL: &str = "SELECT id, email, change, created_at FROM operator_changes ORDER BY id DESC";
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_all(c))?)
}
