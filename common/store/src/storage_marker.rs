//! The id of the directory of the media library.

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// Returns the id; `None` before the first start, after a restore, and for a bucket.
pub async fn find(conn: &mut Conn) -> Result<Option<String>> {
    const SQL: &str = "SELECT marker FROM storage_marker WHERE id = 1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).fetch_optional(c))?)
}

/// Stores the id unless another process has stored one.
pub async fn insert(tx: &mut Tx, marker: &str) -> Result<()> {
    const SQL: &str = "
        INSERT INTO storage_marker (id, marker)
        VALUES (1, $1)
        ON CONFLICT DO NOTHING";
    execute!(tx, SQL, marker)?;
    Ok(())
}

/// Stores the id of a directory that replaces the previous one.
pub async fn replace(tx: &mut Tx, marker: &str) -> Result<()> {
    const SQL: &str = "
        INSERT INTO storage_marker (id, marker)
        VALUES (1, $1)
        ON CONFLICT (id) DO UPDATE SET marker = excluded.marker";
    execute!(tx, SQL, marker)?;
    Ok(())
}

/// Deletes the id, so that the next start marks the configured directory.
pub async fn delete(tx: &mut Tx) -> Result<()> {
    execute!(tx, "DELETE FROM storage_marker")?;
    Ok(())
}
