//! Two engines, one SQL text.
//!
//! [`run!`] expands a query once per engine; the text, its `$1` placeholders and its binds are the same. If the texts
//! must differ, [`Conn::for_engine`] chooses one. It lists the reasons.
//!
//! Postgres has one pool. SQLite has one writer connection, for which writers queue, and several readers (WAL). To open
//! a SQLite file a second time in one process, use [`Db::new_connections`], so that both writers share the semaphore.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use crier_base::backoff::{self, ExponentialBuilder, Retryable};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Postgres, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::cost;
use super::error::StoreError;
use super::pool::{Pool, Pooled};
use super::transaction::{SqliteExecutor, Transaction};
use super::wal::WalSync;

/// How long to wait for a connection before the database counts as unreachable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement waits for the response of Postgres: longer than `statement_timeout`. A server that disappears
/// with its machine or its network closes no connections, so without the limit a statement could wait forever, and with
/// it all claims of a worker.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(70);
/// How long SQLite waits for another process (a `crier` command) to finish its write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses between attempts to open a file that another process holds.
const OPEN_RETRIES: ExponentialBuilder =
    backoff::exponential(Duration::from_millis(10), Duration::from_millis(100)).with_total_delay(Some(BUSY_TIMEOUT));
const SQLITE_READERS: u32 = 4;
/// The pool size of [`Db::new_connections`]: one connection in use, and a spare if that one hangs.
const EXTRA_POOL_SIZE: u32 = 2;
/// Settings of every Postgres connection. JIT is off, because all statements are short, and a wrong estimate would cost
/// a second of compilation. A transaction waits only for the database, so an idle one belongs to a suspended process or
/// a lost machine. The timeout releases its row locks well within a lease. A statement that runs for a minute has a bad
/// plan, for example a search in a table that was never analyzed: without the limit, it would hold a connection after
/// its client has given up.
///
/// A connection to a standby is rejected. During a fail-over, the address may still be that of a former primary: its
/// connections would be reused for half an hour, would accept no write, and would read old rows.
const SETTINGS: &str = "
    DO $$
    BEGIN
        IF pg_is_in_recovery() THEN
            RAISE EXCEPTION 'the server is a standby' USING ERRCODE = 'read_only_sql_transaction';
        END IF;
    END
    $$;
    SET jit = off;
    SET idle_in_transaction_session_timeout = '10s';
    SET statement_timeout = '60s'";

/// The database pools.
#[derive(Clone, Debug)]
pub enum Db {
    Pg(Pool<Postgres>),
    Sqlite {
        path: PathBuf,
        writer: Pool<Sqlite>,
        readers: Pool<Sqlite>,
        log: WalSync,
        /// Writers take turns with this semaphore: SQLite's own lock is unfair, and could starve a waiter under full
        /// load, such as the heartbeat's connection.
        write_permit: Arc<Semaphore>,
    },
}

/// A read connection or a transaction.
#[derive(Debug)]
pub enum Conn {
    Pg(Pooled<Postgres>),
    PgTx(Transaction<Postgres>),
    Sqlite(Pooled<Sqlite>),
    SqliteTx(Transaction<Sqlite>),
}

/// What [`run!`] matches on.
pub enum Engine<'c> {
    Pg(&'c mut PgConnection),
    Sqlite(SqliteExecutor<'c>),
}

/// Runs one query text on the connection's engine: `run!(conn, c => sqlx::query(SQL).bind(x).execute(c))`. A third
/// argument converts results whose types differ between the engines.
macro_rules! run {
    ($conn:expr, $c:ident => $query:expr $(, $convert:expr)?) => {{
        let conn: &mut $crate::db::Conn = $conn;
        let result = match conn.engine() {
            $crate::db::Engine::Pg($c) => {
                $crate::db::in_time(tokio::time::timeout($crate::db::RESPONSE_TIMEOUT, $query).await)$(.map($convert))?
            }
            $crate::db::Engine::Sqlite($c) => $query.await$(.map($convert))?,
        };
        conn.end_statement(result.as_ref().err());
        result
    }};
}
/// Runs `INSERT`, `UPDATE` or `DELETE` and returns the number of rows.
macro_rules! execute {
    ($conn:expr, $sql:expr $(, $bind:expr)* $(,)?) => {
        $crate::db::run!($conn, c => sqlx::query($sql)$(.bind($bind))*.execute(c), |done| done.rows_affected())
    };
}
pub(crate) use {execute, run};

/// Returns the result of a statement. After a timeout, returns an error that means that the connection was lost.
pub fn in_time<T>(result: Result<Result<T, sqlx::Error>, Elapsed>) -> Result<T, sqlx::Error> {
    result.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}

/// Formats a time for use inside a JSON text. SQLite stores times as text, so the format is that of a bound time.
pub fn time_text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, false)
}

impl Conn {
    /// Returns the connection for one statement, after which [`Self::end_statement`] is called.
    pub fn engine(&mut self) -> Engine<'_> {
        cost::count_statements(1);
        match self {
            Self::Pg(c) => Engine::Pg(c.statement()),
            Self::PgTx(tx) => Engine::Pg(tx.connection().statement()),
            Self::Sqlite(c) => Engine::Sqlite(SqliteExecutor::new(c.statement())),
            Self::SqliteTx(tx) => Engine::Sqlite(tx.statement()),
        }
    }

    /// Records the end of the last statement. If it failed, the connection is tested before it is reused.
    pub fn end_statement(&mut self, error: Option<&sqlx::Error>) {
        match self {
            Self::Pg(c) => c.end_statement(error),
            Self::PgTx(tx) => tx.connection().end_statement(error),
            Self::Sqlite(c) => c.end_statement(error),
            Self::SqliteTx(tx) => tx.connection().end_statement(error),
        }
    }

    /// Commits a transaction. Does nothing without one.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        cost::count_statements(u64::from(self.is_open()));
        match self {
            Self::PgTx(tx) => in_time(timeout(RESPONSE_TIMEOUT, tx.commit()).await)?,
            Self::SqliteTx(tx) => tx.commit().await?,
            Self::Pg(_) | Self::Sqlite(_) => {}
        }
        Ok(())
    }

    /// Rolls back immediately.
    pub(super) async fn rollback(self) -> Result<(), StoreError> {
        cost::count_statements(u64::from(self.is_open()));
        match self {
            Self::PgTx(tx) => in_time(timeout(RESPONSE_TIMEOUT, tx.rollback()).await)?,
            Self::SqliteTx(tx) => tx.rollback().await?,
            Self::Pg(_) | Self::Sqlite(_) => {}
        }
        Ok(())
    }

    /// Returns whether a transaction must be ended.
    fn is_open(&self) -> bool {
        match self {
            Self::Pg(_) | Self::Sqlite(_) => false,
            Self::PgTx(tx) => tx.is_open(),
            Self::SqliteTx(tx) => tx.is_open(),
        }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self, Self::Pg(_) | Self::PgTx(_))
    }

    /// Returns the SQL for this connection's engine. `pg` and `sqlite` take the same binds.
    ///
    /// A statement is a pair only for one of these reasons:
    /// - It reads a list from a bind: `json_array_elements($1::json)` on Postgres, where each value also needs its type,
    ///   and `json_each($1)` on SQLite. For a list of ids there is [`list_sql!`](super::jobs::list_sql).
    /// - It writes to several tables: with `WITH` on Postgres, as several statements in one text on SQLite, which has no
    ///   `INSERT`, `UPDATE` or `DELETE` in `WITH`.
    /// - It calls a function that has another name on the other engine.
    /// - One of the engines would choose a worse plan. Then a comment says which.
    ///
    /// If only a lock differs, there is [`locking_sql!`](super::sql::locking_sql).
    pub fn for_engine(&self, pg: &'static str, sqlite: &'static str) -> &'static str {
        if self.is_postgres() { pg } else { sqlite }
    }
}

impl Db {
    /// Creates a Postgres pool. It connects on first use, so services may start in any order.
    pub fn postgres(url: &str, max_connections: u32) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)?.application_name("crier");
        Ok(Self::Pg(pg_pool(options, max_connections)))
    }

    /// Opens the SQLite file at `path`, and creates it if it is missing.
    pub async fn sqlite(path: &Path) -> Result<Self, StoreError> {
        Self::open_sqlite(path, Arc::new(Semaphore::new(1))).await
    }

    /// Opens a few more connections to the same database, for a thread with its own runtime.
    pub async fn new_connections(&self) -> Result<Self, StoreError> {
        match self {
            Self::Pg(pool) => Ok(Self::Pg(pg_pool((*pool.sqlx_pool().connect_options()).clone(), EXTRA_POOL_SIZE))),
            Self::Sqlite { path, write_permit, .. } => Self::open_sqlite(path, write_permit.clone()).await,
        }
    }

    async fn open_sqlite(path: &Path, write_permit: Arc<Semaphore>) -> Result<Self, StoreError> {
        let options = sqlite_options(path);
        let writer = sqlite_pool(1).acquire_timeout(ACQUIRE_TIMEOUT * 4);
        let writer = Pool::new(open(writer, &options).await?);
        let readers = sqlite_pool(SQLITE_READERS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.read_only(true).create_if_missing(false));
        let readers = Pool::new(readers);
        let log = WalSync::start(path).map_err(sqlx::Error::Io)?;
        Ok(Self::Sqlite { path: path.to_owned(), writer, readers, log, write_permit })
    }

    /// Returns a read connection, outside any transaction.
    pub async fn read(&self) -> Result<Conn, StoreError> {
        Ok(match self {
            Self::Pg(pool) => Conn::Pg(pool.acquire().await?),
            Self::Sqlite { readers, .. } => Conn::Sqlite(readers.acquire().await?),
        })
    }

    /// Begins a transaction that may write. Dropping it without a commit rolls it back. On SQLite, its commit is
    /// durable when [`Db::sync`] has returned.
    pub async fn begin(&self) -> Result<Conn, StoreError> {
        self.begin_with("BEGIN").await
    }

    /// Begins a transaction whose commit does not wait for the disk. A power cut (on Postgres also a server crash) may
    /// undo it; a later durable commit on any connection makes it durable too.
    pub async fn begin_async_commit(&self) -> Result<Conn, StoreError> {
        self.begin_with("BEGIN; SET LOCAL synchronous_commit = off").await
    }

    async fn begin_with(&self, pg: &'static str) -> Result<Conn, StoreError> {
        cost::count_transaction();
        Ok(match self {
            Self::Pg(pool) => {
                cost::count_statements(1 + pg.matches(';').count() as u64);
                let begun = Transaction::begin(pool.acquire().await?, pg);
                Conn::PgTx(in_time(timeout(RESPONSE_TIMEOUT, begun).await)?)
            }
            Self::Sqlite { writer, write_permit, .. } => {
                let permit = timeout(ACQUIRE_TIMEOUT * 4, write_permit.clone().acquire_owned()).await;
                let permit = permit.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
                Conn::SqliteTx(Transaction::new(writer.acquire().await?, permit))
            }
        })
    }

    /// Waits until every earlier commit is on the disk. A no-op on Postgres, where a durable commit itself waits.
    pub async fn sync(&self) -> Result<(), StoreError> {
        match self {
            Self::Pg(_) => Ok(()),
            Self::Sqlite { log, .. } => Ok(log.sync().await.map_err(sqlx::Error::Io)?),
        }
    }

    /// Migrates the schema to this version. Several processes may do it concurrently. Its connection logs no statements:
    /// a file of migrations is one statement, and the log of a slow one would contain all of it.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        match self {
            Self::Pg(pool) => {
                let options = (*pool.sqlx_pool().connect_options()).clone().disable_statement_logging();
                let mut connection = connect(&options).await?;
                // A migration may rewrite a large table, or wait for that of another process.
                sqlx::raw_sql("SET statement_timeout = 0").execute(&mut connection).await?;
                sqlx_macros::migrate!("../../migrations/postgres").run_direct(None, &mut connection, false).await?;
                connection.close().await?;
            }
            Self::Sqlite { path, .. } => {
                let mut connection = connect_quietly(path).await?;
                // On Postgres, sqlx takes a lock. On SQLite it does not, so this transaction serves as one.
                let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
                sqlx_macros::migrate!("../../migrations/sqlite").run_direct(None, &mut *tx, false).await?;
                tx.commit().await?;
                self.sync().await?;
                connection.close().await?;
            }
        }
        Ok(())
    }

    /// Returns the number of the last applied migration.
    pub async fn schema_version(&self) -> Result<i64, StoreError> {
        const SQL: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success";
        let mut conn = self.read().await?;
        Ok(run!(&mut conn, c => sqlx::query_scalar(SQL).fetch_one(c))?)
    }

    /// Copies a consistent snapshot of a SQLite database to an empty file, while others use it.
    pub async fn copy_to(&self, target: &Path) -> Result<(), StoreError> {
        let Self::Sqlite { path, .. } = self else {
            return Err(StoreError::Decode("a database on Postgres cannot be copied to a file".into()));
        };
        let mut connection = connect_quietly(path).await?;
        sqlx::query("VACUUM INTO $1").bind(target.to_string_lossy()).execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }

    /// Fails if the schema is older than this version. Accepts a newer schema, which a newer process may have migrated.
    pub async fn check_schema_version(&self) -> Result<(), StoreError> {
        let newest = match self {
            Self::Pg(_) => sqlx_macros::migrate!("../../migrations/postgres"),
            Self::Sqlite { .. } => sqlx_macros::migrate!("../../migrations/sqlite"),
        };
        let wanted = newest.iter().map(|m| m.version).max().unwrap_or_default();
        let have = self.schema_version().await?;
        if have < wanted {
            return Err(StoreError::Decode(format!(
                "the schema is at version {have}, but this program requires {wanted}"
            )));
        }
        Ok(())
    }

    /// Opens one connection on Postgres, and closes it.
    pub async fn probe(&self) -> Result<(), StoreError> {
        let Self::Pg(pool) = self else { return Ok(()) };
        Ok(connect(&pool.sqlx_pool().connect_options()).await?.close().await?)
    }

    /// Fails if the database does not respond or has no `jobs` table.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let ping = async {
            let mut conn = self.read().await?;
            let _: Option<i64> =
                run!(&mut conn, c => sqlx::query_scalar("SELECT id FROM jobs WHERE id = 0").fetch_optional(c))?;
            Ok::<_, StoreError>(())
        };
        timeout(PROBE_TIMEOUT, ping).await.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))
    }

    /// Closes all connections; on SQLite this also copies the write-ahead log into the file.
    pub async fn close(&self) {
        match self {
            Self::Pg(pool) => pool.close().await,
            Self::Sqlite { writer, readers, .. } => {
                readers.close().await;
                writer.close().await;
            }
        }
    }
}

/// Opens a Postgres connection outside the pool, and fails immediately with the reason. The pool would retry until its
/// timeout, and then report only the timeout.
async fn connect(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let connect = async {
        let mut connection = PgConnection::connect_with(options).await?;
        sqlx::raw_sql(SETTINGS).execute(&mut connection).await?;
        Ok::<_, sqlx::Error>(connection)
    };
    Ok(timeout(PROBE_TIMEOUT, connect).await.map_err(|_| sqlx::Error::PoolTimedOut)??)
}

/// Opens a SQLite connection outside the pools for statements that may be slow. It logs none of them.
async fn connect_quietly(path: &Path) -> Result<SqliteConnection, StoreError> {
    let options = sqlite_options(path).create_if_missing(false).disable_statement_logging();
    Ok(SqliteConnection::connect_with(&options).await?)
}

fn pg_pool(options: PgConnectOptions, max_connections: u32) -> Pool<Postgres> {
    let pool = PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // A lost connection is found when a query fails. A ping before each use would double the round trips.
        .test_before_acquire(false)
        .after_connect(|conn, _| Box::pin(async move { sqlx::raw_sql(SETTINGS).execute(conn).await.map(drop) }))
        // sqlx tests a connection that is returned without a limit, and counts it until then.
        .after_release(|conn, _| {
            Box::pin(async move {
                let pinged = timeout(PROBE_TIMEOUT, conn.ping()).await;
                Ok::<_, sqlx::Error>(matches!(pinged, Ok(Ok(()))))
            })
        })
        .connect_lazy_with(options);
    Pool::new(pool)
}

fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // `Db::sync` waits for the disk after the commit, together with other commits.
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .statement_cache_capacity(256)
}

/// Creates a pool whose connections do not expire: they stay open, so that they need no file descriptor when none is
/// free.
fn sqlite_pool(max_connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(max_connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// Opens the file. Retries while the file is busy: switching a new file to WAL needs exclusive access, for which SQLite
/// itself does not wait.
async fn open(pool: SqlitePoolOptions, options: &SqliteConnectOptions) -> Result<SqlitePool, StoreError> {
    let busy = |error: &sqlx::Error| matches!(error, sqlx::Error::Database(e) if e.code().as_deref() == Some("5"));
    Ok((|| pool.clone().connect_with(options.clone())).retry(OPEN_RETRIES).when(busy).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_statement_without_a_response_fails() {
        let response = std::future::pending::<Result<(), sqlx::Error>>();
        let error = StoreError::from(in_time(timeout(RESPONSE_TIMEOUT, response).await).unwrap_err());
        assert!(error.is_unavailable(), "{error}");
    }
}
