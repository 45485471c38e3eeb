//! Two engines, one SQL text.
//!
//! [`run!`] expands a query once for each engine; the text, its `$1` placeholders and its binds are the same. Postgres has a
//! pool; SQLite has one writer connection that writers queue for, and several readers beside it (WAL). Whoever opens a
//! SQLite file a second time in a process does so by [`Db::another`], so that the writers of both take turns.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, Utc};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgConnection, PgPool, Postgres, Sqlite, SqliteConnection, SqlitePool, Transaction};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::checkpoints::{Checkpoints, LONGEST_LOG};
use super::error::StoreError;
use super::wal::WalSync;

/// How long a request waits for a connection before the database counts as unreachable.
const ACQUIRE: Duration = Duration::from_secs(5);
/// How long SQLite waits for another process (a `crier` command) to finish its write.
const BUSY: Duration = Duration::from_secs(10);
const SQLITE_READERS: u32 = 4;
/// Of another thread: one that is in use, and one in its place should that one hang.
const A_FEW: u32 = 2;
/// Of each connection to Postgres. All statements are short: one that is merely thought to be long would be compiled first,
/// for a second. And no transaction waits for anything but the database: one that does nothing for so long is of a process
/// that sleeps, or of a machine that is gone, and gives back the rows that it holds, well within a lease.
const SETTINGS: &str = "SET jit = off; SET idle_in_transaction_session_timeout = '10s'";

/// The database.
#[derive(Clone, Debug)]
pub enum Db {
    Pg(PgPool),
    Sqlite {
        path: PathBuf,
        writer: SqlitePool,
        readers: SqlitePool,
        log: WalSync,
        /// Whose turn it is to write. SQLite itself lets whoever asks at the right moment, and may never come to one who
        /// waits: the heartbeat's connection beside a writer under full load.
        turn: Arc<Semaphore>,
        /// Made by the first that opened the file in this process.
        checkpoints: Option<Checkpoints>,
    },
}

/// A connection to read from, or a transaction.
#[derive(Debug)]
pub enum Conn {
    Pg(PoolConnection<Postgres>),
    PgTx(Transaction<'static, Postgres>),
    Sqlite(PoolConnection<Sqlite>),
    SqliteTx(Transaction<'static, Sqlite>, OwnedSemaphorePermit),
}

/// What [`run!`] matches on.
pub enum Engine<'c> {
    Pg(&'c mut PgConnection),
    Sqlite(&'c mut SqliteConnection),
}

/// Runs one query text on whichever engine the connection is of: `run!(conn, c => sqlx::query(SQL).bind(x).execute(c))`.
macro_rules! run {
    ($conn:expr, $c:ident => $query:expr) => {
        match $crate::store::db::Conn::engine($conn) {
            $crate::store::db::Engine::Pg($c) => $query.await,
            $crate::store::db::Engine::Sqlite($c) => $query.await,
        }
    };
}
/// Runs `INSERT`, `UPDATE` or `DELETE` and gives the number of rows.
macro_rules! execute {
    ($conn:expr, $sql:expr $(, $bind:expr)* $(,)?) => {
        match $crate::store::db::Conn::engine($conn) {
            $crate::store::db::Engine::Pg(c) => sqlx::query($sql)$(.bind($bind))*.execute(c).await.map(|r| r.rows_affected()),
            $crate::store::db::Engine::Sqlite(c) => sqlx::query($sql)$(.bind($bind))*.execute(c).await.map(|r| r.rows_affected()),
        }
    };
}
pub(crate) use {execute, run};

/// A time as both engines take it from inside a JSON text; on SQLite, where times are texts, in the form that a bound one has.
pub(crate) fn time_text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, false)
}

impl Conn {
    pub fn engine(&mut self) -> Engine<'_> {
        match self {
            Self::Pg(c) => Engine::Pg(c),
            Self::PgTx(c) => Engine::Pg(c),
            Self::Sqlite(c) => Engine::Sqlite(c),
            Self::SqliteTx(c, _) => Engine::Sqlite(c),
        }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self, Self::Pg(_) | Self::PgTx(_))
    }

    /// A piece of SQL that the two engines spell differently. `pg` and `sqlite` take the same binds.
    pub fn spelt(&self, pg: &'static str, sqlite: &'static str) -> &'static str {
        if self.is_postgres() { pg } else { sqlite }
    }
}

impl Db {
    /// A pool on Postgres. Connects when first used, so that services may start in any order.
    pub fn postgres(url: &str, max_connections: u32) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)?.application_name("crier");
        Ok(Self::Pg(pg_pool(options, max_connections)))
    }

    /// The file at `path`, made where it is missing.
    pub async fn sqlite(path: &Path) -> Result<Self, StoreError> {
        let mut opened = Self::sqlite_in_turn(path, Arc::new(Semaphore::new(1))).await?;
        if let Self::Sqlite { checkpoints, .. } = &mut opened {
            *checkpoints = Some(Checkpoints::start(sqlite_pool(1), sqlite_options(path)));
        }
        Ok(opened)
    }

    /// A few other connections to the same database, for a thread with a runtime of its own.
    pub async fn another(&self) -> Result<Self, StoreError> {
        match self {
            Self::Pg(pool) => Ok(Self::Pg(pg_pool((*pool.connect_options()).clone(), A_FEW))),
            Self::Sqlite { path, turn, .. } => Self::sqlite_in_turn(path, turn.clone()).await,
        }
    }

    async fn sqlite_in_turn(path: &Path, turn: Arc<Semaphore>) -> Result<Self, StoreError> {
        let options = sqlite_options(path);
        let writer = sqlite_pool(1).acquire_timeout(ACQUIRE * 4);
        let writer = open(writer, &options).await?;
        let readers = sqlite_pool(SQLITE_READERS)
            .acquire_timeout(ACQUIRE)
            .connect_lazy_with(options.read_only(true).create_if_missing(false));
        let log = WalSync::start(path).map_err(sqlx::Error::Io)?;
        Ok(Self::Sqlite { path: path.to_owned(), writer, readers, log, turn, checkpoints: None })
    }

    /// A connection to read from, outside any transaction.
    pub async fn read(&self) -> Result<Conn, StoreError> {
        Ok(match self {
            Self::Pg(pool) => Conn::Pg(pool.acquire().await?),
            Self::Sqlite { readers, .. } => Conn::Sqlite(readers.acquire().await?),
        })
    }

    /// A transaction that may write. Dropped without a commit, it is rolled back. On SQLite its commit is kept once
    /// [`Db::sync`] has returned.
    pub async fn begin(&self) -> Result<Conn, StoreError> {
        self.begin_with("BEGIN").await
    }

    /// A transaction whose commit does not wait for the disk. A power cut (or, on Postgres, a crash of the server) may undo
    /// it; a later firm commit, on whatever connection, keeps it as well.
    pub async fn begin_soft(&self) -> Result<Conn, StoreError> {
        self.begin_with("BEGIN; SET LOCAL synchronous_commit = off").await
    }

    async fn begin_with(&self, pg: &'static str) -> Result<Conn, StoreError> {
        Ok(match self {
            Self::Pg(pool) => Conn::PgTx(pool.begin_with(pg).await?),
            Self::Sqlite { writer, turn, .. } => {
                let turn = tokio::time::timeout(ACQUIRE * 4, turn.clone().acquire_owned()).await;
                let turn = turn.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
                Conn::SqliteTx(begin_write(writer).await?, turn)
            }
        })
    }

    /// Returns once every commit before is on the disk. On Postgres a firm commit waits for that by itself.
    pub async fn sync(&self) -> Result<(), StoreError> {
        match self {
            Self::Pg(_) => Ok(()),
            Self::Sqlite { log, .. } => Ok(log.sync().await.map_err(sqlx::Error::Io)?),
        }
    }

    /// Brings the schema to this version. Safe when several processes do it at once.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        match self {
            Self::Pg(pool) => sqlx::migrate!("../migrations/postgres").run(pool).await?,
            Self::Sqlite { writer, .. } => {
                // On Postgres sqlx takes a lock of its own; here it has none.
                let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
                sqlx::migrate!("../migrations/sqlite").run_direct(None, &mut *tx, false).await?;
                tx.commit().await?;
                self.sync().await?;
            }
        }
        Ok(())
    }

    /// Whether the schema is that of this version (or a later one, made by a newer process beside this one).
    pub async fn is_current(&self) -> Result<(), StoreError> {
        let newest = match self {
            Self::Pg(_) => sqlx::migrate!("../migrations/postgres"),
            Self::Sqlite { .. } => sqlx::migrate!("../migrations/sqlite"),
        };
        let wanted = newest.iter().map(|m| m.version).max().unwrap_or_default();
        const SQL: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success";
        let mut conn = self.read().await?;
        let have: i64 = run!(&mut conn, c => sqlx::query_scalar(SQL).fetch_one(c))?;
        if have < wanted {
            return Err(StoreError::Decode(format!("the schema is at version {have}, this program needs {wanted}")));
        }
        Ok(())
    }

    /// Whether the database answers and has the schema of this version.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let mut conn = self.read().await?;
        let _: Option<i64> =
            run!(&mut conn, c => sqlx::query_scalar("SELECT id FROM jobs WHERE id = 0").fetch_optional(c))?;
        Ok(())
    }

    /// Closes all connections; on SQLite this also folds the write-ahead log into the file.
    pub async fn close(&self) {
        match self {
            Self::Pg(pool) => pool.close().await,
            Self::Sqlite { writer, readers, checkpoints, .. } => {
                if let Some(checkpoints) = checkpoints {
                    checkpoints.close().await;
                }
                readers.close().await;
                writer.close().await;
            }
        }
    }
}

fn pg_pool(options: PgConnectOptions, max_connections: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(ACQUIRE)
        // A connection that the server dropped is found by its failure; the ping before each use would double the trips.
        .test_before_acquire(false)
        .after_connect(|conn, _| Box::pin(async move { sqlx::raw_sql(SETTINGS).execute(conn).await.map(drop) }))
        .connect_lazy_with(options)
}

pub(super) fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // The wait for the disk comes after the commit, shared with others: `Db::sync`.
        .synchronous(SqliteSynchronous::Normal)
        .pragma("wal_autocheckpoint", LONGEST_LOG)
        .busy_timeout(BUSY)
        .foreign_keys(true)
        .statement_cache_capacity(256)
}

/// Connections to a file do not age. They stay open, so that they need no descriptor in a moment when none is free.
fn sqlite_pool(max_connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(max_connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// A transaction on the one connection that writes. Where a disk is full, SQLite rolls back by itself; sqlx does not notice,
/// and takes the connection for one in a transaction for ever: a new one takes its place.
async fn begin_write(writer: &SqlitePool) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
    const BEGIN: &str = "BEGIN IMMEDIATE";
    match writer.begin_with(BEGIN).await {
        Err(sqlx::Error::InvalidSavePointStatement) => {
            writer.acquire().await?.close().await?;
            writer.begin_with(BEGIN).await
        }
        begun => begun,
    }
}

/// Opens the file. To switch a new one to WAL SQLite needs it alone, and does not wait for that by itself.
async fn open(pool: SqlitePoolOptions, options: &SqliteConnectOptions) -> Result<SqlitePool, StoreError> {
    let give_up = Instant::now() + BUSY;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(sqlx::Error::Database(e)) if e.code().as_deref() == Some("5") && Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            opened => return Ok(opened?),
        }
    }
}
