//! Database functions that only `crier bench` needs: its own Postgres database, rows in bulk, and the durability
//! settings of the server.

use std::ops::Range;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use crier_domain::job::{JobKind, JobState};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use url::Url;

use super::db::{Db, execute, run};
use super::{Conn, Result, StoreError, Tx};

/// A database beside the installation's, on the same server.
#[derive(Clone)]
pub struct ScratchDatabase {
    /// The installation's database, only connected to for `CREATE DATABASE` and `DROP DATABASE`.
    server: PgConnectOptions,
    pub name: String,
    /// Includes the password.
    pub url: String,
}

impl ScratchDatabase {
    /// Chooses a name. Creates nothing yet. `url` is the installation's.
    pub fn beside(url: &str) -> Result<Self> {
        let server = PgConnectOptions::from_str(url)?.application_name("crier bench");
        let name = format!("crier_bench_{:016x}", crier_base::random::u64());
        let mut own = Url::parse(url).map_err(|error| StoreError::Decode(format!("the URL: {error}")))?;
        own.set_path(&name);
        Ok(Self { server, name, url: own.into() })
    }

    pub async fn make(&self) -> Result<()> {
        self.execute_on_server("CREATE DATABASE").await?;
        // A `dbname` option in the URL overrides its path, and would connect to the installation's tables.
        let mut own = PgConnection::connect(&self.url).await?;
        let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&mut own).await?;
        own.close().await?;
        if name == self.name {
            return Ok(());
        }
        Err(StoreError::Decode(format!("the URL connects to the database {name}, whatever its path is")))
    }

    /// Drops the database, and closes all connections to it.
    pub async fn remove(&self) -> Result<()> {
        self.execute_on_server("DROP DATABASE IF EXISTS").await
    }

    async fn execute_on_server(&self, what: &str) -> Result<()> {
        let force = if what.starts_with("DROP") { " WITH (FORCE)" } else { "" };
        let mut server = self.server.connect().await?;
        // The name was generated here.
        sqlx::raw_sql(AssertSqlSafe(format!("{what} {}{force}", self.name))).execute(&mut server).await?;
        Ok(server.close().await?)
    }
}

/// Inserts jobs of one kind and state, one per subject, all due at the same time. Sends no notifications.
pub async fn fill(
    tx: &mut Tx,
    kind: JobKind,
    state: JobState,
    subjects: Range<i64>,
    run_at: DateTime<Utc>,
) -> Result<()> {
    const SQL: &str = "
        WITH RECURSIVE subjects (id) AS (
            SELECT CAST($1 AS bigint)
            UNION ALL
            SELECT id + 1
            FROM subjects
            WHERE id + 1 < $2
        )
        INSERT INTO jobs (kind, subject_id, state, run_at, max_attempts, dispatched_at, created_at)
        SELECT $3, id, $4, $5, $6, $7, $7
        FROM subjects
        WHERE id < $2";
    let now = tx.now;
    execute!(tx, SQL, subjects.start, subjects.end, kind, state, run_at, kind.limits().max_attempts, now)?;
    Ok(())
}

/// Runs the server's maintenance after a bulk insert, so that it does not run during a measurement.
pub async fn tidy(db: &Db) -> Result<()> {
    match db {
        Db::Pg(pool) => {
            sqlx::raw_sql("VACUUM (ANALYZE) jobs").execute(&mut *pool.acquire().await?).await?;
            // Works only if the user has the privilege.
            let _ = sqlx::raw_sql("CHECKPOINT").execute(&mut *pool.acquire().await?).await;
        }
        Db::Sqlite { writer, .. } => {
            sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut *writer.acquire().await?).await.map(drop)?
        }
    }
    Ok(())
}

/// Returns the number of jobs that are due and have not ended.
pub async fn pending_jobs(db: &Db) -> Result<i64> {
    uncounted(db, "SELECT count(*) FROM jobs WHERE state IN ('ready', 'running')").await
}

/// Returns the number of API keys whose use has been recorded. A background task records it after a request.
pub async fn used_keys(db: &Db) -> Result<i64> {
    uncounted(db, "SELECT count(*) FROM api_keys WHERE last_used_at IS NOT NULL").await
}

/// Reads a number without `run!`, so that the statement is not counted as a cost of what is measured.
async fn uncounted(db: &Db, sql: &'static str) -> Result<i64> {
    Ok(match db {
        Db::Pg(pool) => sqlx::query_scalar(sql).fetch_one(&mut *pool.acquire().await?).await?,
        Db::Sqlite { readers, .. } => sqlx::query_scalar(sql).fetch_one(&mut *readers.acquire().await?).await?,
    })
}

/// The size of a page in SQLite's write-ahead log, and of that file's header.
const LOG_PAGE: u64 = 4_096 + 24;
const LOG_HEADER: u64 = 32;

/// Returns the length of the write-ahead log: on Postgres in bytes, for all databases of the server; on SQLite in
/// pages, since [`tidy`] emptied it.
pub async fn log_position(db: &Db) -> Result<u64> {
    match db {
        Db::Pg(pool) => {
            const SQL: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
            let position: i64 = sqlx::query_scalar(SQL).fetch_one(&mut *pool.acquire().await?).await?;
            Ok(u64::try_from(position).unwrap_or_default())
        }
        Db::Sqlite { path, .. } => {
            let log = std::fs::metadata(path.with_extension("db-wal")).map_err(sqlx::Error::Io)?;
            Ok(log.len().saturating_sub(LOG_HEADER) / LOG_PAGE)
        }
    }
}

/// Returns the engine with its version, and a description of when a commit waits for the disk.
pub async fn engine(conn: &mut Conn) -> Result<(String, String)> {
    let sql = conn.for_engine(
        "
            SELECT 'PostgreSQL ' || current_setting('server_version'),
                'fsync ' || current_setting('fsync') || ', synchronous_commit ' || current_setting(
                    'synchronous_commit'
                )",
        "
            SELECT 'SQLite ' || sqlite_version(), 'each commit synced to the disk, with those beside it'",
    );
    Ok(run!(conn, c => sqlx::query_as(sql).fetch_one(c))?)
}
