//! Snippets, and their use as signatures of accounts.
//!
//! Choosing a signature locks the snippet, so that it stays a signature. A change of a snippet locks the snippet first,
//! then the brand, whose lock protects the limits.

use crier_domain::snippet::{Snippet, SnippetKind};

use super::db::{execute, run};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, Tx};

const COLUMNS: &str = "id, name, kind, content, created_at, updated_at";

/// A snippet as a client sends it.
#[derive(Clone, Copy, Debug)]
pub struct NewSnippet<'a> {
    pub name: &'a str,
    pub kind: SnippetKind,
    pub content: &'a str,
}

/// Lists the brand's snippets, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64) -> Result<Vec<Snippet>> {
    let sql = sql!("SELECT {COLUMNS} FROM snippets WHERE brand_id = $1 ORDER BY id DESC", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).fetch_all(c))?)
}

/// Returns how many snippets the brand has, and the size of their contents in bytes.
pub async fn size(conn: &mut Conn, brand_id: i64) -> Result<(i64, i64)> {
    const SQL: &str = "
        SELECT count(*), CAST(coalesce(sum(octet_length(content)), 0) AS bigint)
        FROM snippets
        WHERE brand_id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).fetch_one(c))?)
}

/// Finds a snippet and locks its row.
pub async fn find_for_update(tx: &mut Tx, brand_id: i64, snippet_id: i64) -> Result<Option<Snippet>> {
    let sql = locking_sql!(
        tx,
        "SELECT {COLUMNS} FROM snippets WHERE brand_id = $1 AND id = $2 {LOCK}",
        "FOR UPDATE",
        COLUMNS
    );
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(snippet_id).fetch_optional(c))?)
}

pub async fn create(tx: &mut Tx, brand_id: i64, new: &NewSnippet<'_>) -> Result<Snippet> {
    let sql = sql!(
        "
        INSERT INTO snippets (brand_id, name, kind, content, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $5)
        RETURNING {COLUMNS}",
        COLUMNS
    );
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(new.name).bind(new.kind).bind(new.content).bind(now)
        .fetch_one(c))?)
}

/// Stores the mutable fields of a snippet.
pub async fn update(tx: &mut Tx, snippet: &Snippet) -> Result<()> {
    const SQL: &str = "UPDATE snippets SET name = $2, kind = $3, content = $4, updated_at = $5 WHERE id = $1";
    execute!(tx, SQL, snippet.id, &snippet.name, snippet.kind, &snippet.content, snippet.updated_at)?;
    Ok(())
}

/// Deletes a snippet. Accounts whose signature it was have none. Returns `false` if the snippet does not exist.
pub async fn delete(tx: &mut Tx, brand_id: i64, snippet_id: i64) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM snippets WHERE brand_id = $1 AND id = $2", brand_id, snippet_id)? > 0)
}

/// Returns whether a snippet is the signature of an account. The caller has locked its row.
pub async fn is_used(conn: &mut Conn, snippet_id: i64) -> Result<bool> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM brand_accounts WHERE signature_id = $1)";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(snippet_id).fetch_one(c))?)
}

/// Sets the signature of an account of the brand. The caller has locked the snippet's row. Returns `false` if the brand
/// does not have the account.
pub async fn set_signature(tx: &mut Tx, brand_id: i64, account_id: i64, snippet_id: Option<i64>) -> Result<bool> {
    const SQL: &str = "UPDATE brand_accounts SET signature_id = $3 WHERE brand_id = $1 AND account_id = $2";
    Ok(execute!(tx, SQL, brand_id, account_id, snippet_id)? > 0)
}
