//! Checkpoints: a separate connection copies SQLite's write-ahead log into the database file.
//!
//! By default, the commit that makes the log longer than 1,000 pages copies it, for 10 to 30 ms, while all other
//! writers wait. A passive checkpoint neither waits nor blocks. While writes never pause, it does not reach the log's
//! end, and the log cannot restart from its beginning, so a commit still checkpoints when the log has [`MAX_LOG_PAGES`]
//! pages. Few of these are then left to copy.

use std::sync::Arc;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The `wal_autocheckpoint` of every connection that writes, in pages of 4 KiB.
pub const MAX_LOG_PAGES: &str = "8000";
/// The time between two checkpoints.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time between two checkpoints during heavy writes, which would soon fill the log.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);
/// The minimum number of pages per checkpoint at which writes count as heavy.
const MANY_PAGES: i64 = 1_000;

/// Copies the log of one database. Its task ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    pool: SqlitePool,
    _ends: Arc<DropGuard>,
}

impl Checkpoints {
    pub fn start(pool: SqlitePoolOptions, options: SqliteConnectOptions) -> Self {
        let pool = pool.connect_lazy_with(options);
        let ended = CancellationToken::new();
        tokio::spawn(ended.clone().run_until_cancelled_owned(run(pool.clone())));
        Self { pool, _ends: Arc::new(ended.drop_guard()) }
    }

    /// Stops the checkpoints. The last connection that closes copies the whole log into the file.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

async fn run(pool: SqlitePool) {
    // Pages of the log that were copied at the last checkpoint.
    let mut previous = 0;
    let mut pause = INTERVAL;
    loop {
        tokio::time::sleep(pause).await;
        match checkpoint(&pool).await {
            Ok(copied) => {
                // If fewer than before, the log has restarted.
                let new = if copied < previous { copied } else { copied - previous };
                (previous, pause) = (copied, if new < MANY_PAGES { INTERVAL } else { BUSY_INTERVAL });
            }
            Err(sqlx::Error::PoolClosed) => return,
            // A commit checkpoints once the log is long, and reports the error.
            Err(error) => tracing::debug!(%error, "checkpoint of the write-ahead log failed"),
        }
    }
}

/// Copies the pages that no reader needs in the log. Returns how many pages of the log have been copied in total.
async fn checkpoint(pool: &SqlitePool) -> Result<i64, sqlx::Error> {
    let (_busy, _log, copied): (i64, i64, i64) =
        sqlx::query_as("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(pool).await?;
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::sqlite_options;

    fn pool(options: SqliteConnectOptions) -> SqlitePool {
        SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options)
    }

    /// Writes `pages` pages in one transaction.
    async fn write(writer: &SqlitePool, pages: i64) {
        const SQL: &str = "
            WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < $1)
            INSERT INTO pages (page) SELECT zeroblob(4000) FROM n";
        sqlx::query(SQL).bind(pages).execute(writer).await.expect("written");
    }

    #[tokio::test]
    async fn commits_do_not_checkpoint_a_short_wal() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("crier.db");
        let (writer, beside) = (pool(sqlite_options(&path)), pool(sqlite_options(&path)));
        sqlx::raw_sql("CREATE TABLE pages (page BLOB)").execute(&writer).await.expect("a table");
        checkpoint(&beside).await.expect("copied");
        let size = || std::fs::metadata(&path).expect("the database").len();
        let before = size();
        write(&writer, 1_500).await;
        assert_eq!(size(), before, "all of it is in the log");
        assert!(checkpoint(&beside).await.expect("copied") >= 1_500);
        assert!(size() >= before + 1_500 * 4_000);
        // Nothing is left to copy: the log restarts.
        write(&writer, 1).await;
        assert!(checkpoint(&beside).await.expect("copied") < 10);
        let longest: i64 = MAX_LOG_PAGES.parse().expect("a number");
        let before = size();
        write(&writer, longest).await;
        assert!(size() > before, "a commit does it where the log is long");
    }
}
