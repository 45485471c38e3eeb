//! SQL that only the benchmarks need: a separate Postgres database, jobs in bulk, counts, and the settings of the
//! server.

use std::ops::Range;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use crier_domain::job::{JobKind, JobState};
use crier_store::{Db, StoreError, Tx};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use url::Url;

type Result<T> = std::result::Result<T, StoreError>;

/// Runs one statement of a transaction on its engine.
macro_rules! execute {
    ($tx:expr, $sql:expr $(, $bind:expr)* $(,)?) => {{
        let conn: &mut crier_store::Conn = $tx;
        let result = match conn.engine() {
            crier_store::db::Engine::Pg(c) => sqlx::query($sql)$(.bind($bind))*.execute(c).await.map(drop),
            crier_store::db::Engine::Sqlite(c) => sqlx::query($sql)$(.bind($bind))*.execute(c).await.map(drop),
        };
        conn.end_statement(result.as_ref().err());
        result
    }};
}
pub(crate) use execute;

/// A new database on the installation's Postgres server.
#[derive(Clone)]
pub struct ScratchDatabase {
    /// The installation's database, used only for `CREATE DATABASE` and `DROP DATABASE`.
    server: PgConnectOptions,
    pub name: String,
    /// Includes the password.
    pub url: String,
}

impl ScratchDatabase {
    /// Chooses the name, without creating the database. `url` is that of the installation's database.
    pub fn beside(url: &str) -> Result<Self> {
        let server = PgConnectOptions::from_str(url)?.application_name("crier-bench");
        let name = format!("crier_bench_{:016x}", crier_base::random::u64());
        let mut own = Url::parse(url).map_err(|error| StoreError::Decode(format!("the URL: {error}")))?;
        own.set_path(&name);
        Ok(Self { server, name, url: own.into() })
    }

    pub async fn create(&self) -> Result<()> {
        self.execute_on_server("CREATE DATABASE").await?;
        // A `dbname` option in the URL overrides its path, and would connect to the installation's database.
        let mut own = PgConnection::connect(&self.url).await?;
        let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&mut own).await?;
        own.close().await?;
        if name == self.name {
            return Ok(());
        }
        Err(StoreError::Decode(format!("the URL connects to the database {name}, whatever its path is")))
    }

    /// Deletes the database, and closes all connections to it.
    pub async fn delete(&self) -> Result<()> {
        self.execute_on_server("DROP DATABASE IF EXISTS").await
    }

    async fn execute_on_server(&self, statement: &str) -> Result<()> {
        let force = if statement.starts_with("DROP") { " WITH (FORCE)" } else { "" };
        let mut server = self.server.connect().await?;
        // Not from outside: `beside` generated the name.
        sqlx::raw_sql(AssertSqlSafe(format!("{statement} {}{force}", self.name))).execute(&mut server).await?;
        Ok(server.close().await?)
    }
}

/// Inserts jobs of one kind and state, one per subject, all for the same time and without a notification.
pub async fn insert_jobs(
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

/// Runs the server's own maintenance after a bulk insert, so that it does not run during a measurement.
pub async fn run_maintenance(db: &Db) -> Result<()> {
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

/// Disables SQLite's automatic checkpoints, so that [`log_position`] includes all pages: after a checkpoint, the log
/// starts again.
pub async fn disable_checkpoints(db: &Db) -> Result<()> {
    if let Db::Sqlite { writer, .. } = db {
        sqlx::raw_sql("PRAGMA wal_autocheckpoint = 0").execute(&mut *writer.acquire().await?).await?;
    }
    Ok(())
}

/// Returns the number of jobs that are due or running.
pub async fn count_pending_jobs(db: &Db) -> Result<i64> {
    read_uncounted(db, "SELECT count(*) FROM jobs WHERE state IN ('ready', 'running')").await
}

/// Returns the number of API keys whose use was recorded. A background task of a request records it.
pub async fn count_used_keys(db: &Db) -> Result<i64> {
    read_uncounted(db, "SELECT count(*) FROM api_keys WHERE last_used_at IS NOT NULL").await
}

/// Reads a number without a [`crier_store::Conn`], which would count the statement (`crier_store::cost`).
async fn read_uncounted(db: &Db, sql: &'static str) -> Result<i64> {
    Ok(match db {
        Db::Pg(pool) => sqlx::query_scalar(sql).fetch_one(&mut *pool.acquire().await?).await?,
        Db::Sqlite { readers, .. } => sqlx::query_scalar(sql).fetch_one(&mut *readers.acquire().await?).await?,
    })
}

/// Sizes in SQLite's write-ahead log, in bytes: a page with its header, and the header of the file.
const LOG_PAGE_SIZE: u64 = 4_096 + 24;
const LOG_HEADER_SIZE: u64 = 32;

/// Returns the size of the write-ahead log: on Postgres in bytes, of all databases of the server; on SQLite in pages,
/// since the last [`run_maintenance`], which empties it.
pub async fn log_position(db: &Db) -> Result<u64> {
    match db {
        Db::Pg(pool) => {
            const SQL: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
            let position: i64 = sqlx::query_scalar(SQL).fetch_one(&mut *pool.acquire().await?).await?;
            Ok(u64::try_from(position).unwrap_or_default())
        }
        Db::Sqlite { path, .. } => {
            let log = std::fs::metadata(path.with_extension("db-wal")).map_err(sqlx::Error::Io)?;
            Ok(log.len().saturating_sub(LOG_HEADER_SIZE) / LOG_PAGE_SIZE)
        }
    }
}

/// Returns the engine with its version, and how durable a commit is.
pub async fn describe_engine(db: &Db) -> Result<(String, String)> {
    const POSTGRES: &str = "
        SELECT 'PostgreSQL ' || current_setting('server_version'),
            'fsync ' || current_setting('fsync') || ', synchronous_commit ' || current_setting('synchronous_commit')";
    const SQLITE: &str = "
        SELECT 'SQLite ' || sqlite_version(), 'each commit synced to the disk, with those beside it'";
    Ok(match db {
        Db::Pg(pool) => sqlx::query_as(POSTGRES).fetch_one(&mut *pool.acquire().await?).await?,
        Db::Sqlite { readers, .. } => sqlx::query_as(SQLITE).fetch_one(&mut *readers.acquire().await?).await?,
    })
}
