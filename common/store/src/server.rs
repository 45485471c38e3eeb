//! The database server itself.

use chrono::{DateTime, Utc};

use super::db::run;
use super::{Conn, Result};

/// Returns the server's name and version: `PostgreSQL 15.18`, `SQLite 3.46.0`.
pub async fn version(conn: &mut Conn) -> Result<String> {
    let sql = conn.for_engine(
        "SELECT 'PostgreSQL ' || current_setting('server_version')",
        "SELECT 'SQLite ' || sqlite_version()",
    );
    Ok(run!(conn, c => sqlx::query_scalar(sql).fetch_one(c))?)
}

/// Returns the time of the Postgres server. Returns `None` on SQLite.
pub async fn now(conn: &mut Conn) -> Result<Option<DateTime<Utc>>> {
    if !conn.is_postgres() {
        return Ok(None);
    }
    Ok(run!(conn, c => sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(c))?)
}
