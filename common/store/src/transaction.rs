//! Transactions, with as few waits for the database as possible.
//!
//! On SQLite, each statement is passed to the thread that owns the connection, and its result is passed back, which
//! takes longer than most statements. sqlx's own transactions wait two more times, at their beginning and at their end.
//! Here `BEGIN` is sent together with the first statement, and a transaction without statements sends nothing.
//!
//! A dropped transaction is rolled back in the background. After that, its connection is returned, and on SQLite also
//! the permit to write.

use std::time::Duration;

use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use sqlx::sqlite::{SqliteQueryResult, SqliteRow, SqliteStatement, SqliteTypeInfo};
use sqlx::{AssertSqlSafe, Database, Either, Execute, Executor, Postgres, SqlStr, Sqlite, SqliteConnection};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use crate::pool::Pooled;

/// Takes the write lock immediately: a transaction that began with a read could not take it later if another one has
/// written meanwhile.
const BEGIN_SQLITE: &str = "BEGIN IMMEDIATE; ";

/// How long the rollback of a dropped transaction may take. After that, its connection is tested, and closed if it does
/// not respond. Postgres ends an idle transaction after the same time.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was sent, or the transaction has ended.
    Idle,
    /// `BEGIN` was sent; whether it succeeded is unknown.
    Beginning,
    Open,
}

/// A transaction on its own connection.
pub struct Transaction<DB: Database>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    /// `None` after the drop.
    connection: Option<Pooled<DB>>,
    state: State,
    /// The permit to write, on SQLite.
    write_permit: Option<OwnedSemaphorePermit>,
}

impl<DB: Database> Transaction<DB>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.end("COMMIT").await
    }

    pub async fn rollback(mut self) -> Result<(), sqlx::Error> {
        self.end("ROLLBACK").await
    }

    /// Returns whether a statement has begun the transaction.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    async fn end(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        match self.state {
            State::Idle => return Ok(()),
            State::Beginning => return Err(sqlx::Error::BeginFailed),
            State::Open => {}
        }
        let connection = self.connection();
        let ended = connection.statement().execute(sqlx::raw_sql(sql)).await;
        connection.end_statement(ended.as_ref().err());
        ended?;
        self.state = State::Idle;
        Ok(())
    }

    /// Returns the connection.
    pub fn connection(&mut self) -> &mut Pooled<DB> {
        self.connection.as_mut().expect("the drop takes it")
    }
}

impl Transaction<Postgres> {
    /// Begins a transaction with one or more statements.
    pub async fn begin(connection: Pooled<Postgres>, sql: &'static str) -> Result<Self, sqlx::Error> {
        let mut begun = Self { connection: Some(connection), state: State::Beginning, write_permit: None };
        let result = begun.connection().statement().execute(sqlx::raw_sql(sql)).await;
        begun.connection().end_statement(result.as_ref().err());
        result?;
        begun.state = State::Open;
        Ok(begun)
    }
}

impl Transaction<Sqlite> {
    /// Creates a transaction that begins with its first statement.
    pub fn new(connection: Pooled<Sqlite>, write_permit: OwnedSemaphorePermit) -> Self {
        Self { connection: Some(connection), state: State::Idle, write_permit: Some(write_permit) }
    }

    pub fn statement(&mut self) -> SqliteExecutor<'_> {
        let connection = self.connection.as_mut().expect("the drop takes it").statement();
        match self.state {
            State::Open => SqliteExecutor { connection, begins: None },
            State::Idle | State::Beginning => SqliteExecutor { connection, begins: Some(&mut self.state) },
        }
    }
}

impl<DB: Database> Drop for Transaction<DB>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take().filter(|_| self.state != State::Idle) else { return };
        let Ok(runtime) = Handle::try_current() else {
            // A closed connection has no transaction.
            drop(connection.detach());
            return;
        };
        let write_permit = self.write_permit.take();
        connection.set_clean(false);
        runtime.spawn(async move {
            // Fails if there is no transaction: `BEGIN` failed, the `COMMIT` was dropped while it ran, or SQLite has
            // rolled the transaction back, as it does if the disk is full.
            let rollback = (&mut *connection).execute(sqlx::raw_sql("ROLLBACK"));
            let ended = tokio::time::timeout(ROLLBACK_TIMEOUT, rollback).await;
            connection.set_clean(matches!(ended, Ok(Ok(_))));
            drop((connection, write_permit));
        });
    }
}

impl<DB: Database> std::fmt::Debug for Transaction<DB>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Runs one statement on SQLite, with `BEGIN` before it if it is the first one of a transaction.
#[derive(Debug)]
pub struct SqliteExecutor<'c> {
    pub connection: &'c mut SqliteConnection,
    begins: Option<&'c mut State>,
}

impl<'c> SqliteExecutor<'c> {
    /// Runs statements outside of a transaction.
    pub fn new(connection: &'c mut SqliteConnection) -> Self {
        Self { connection, begins: None }
    }
}

type Step = Either<SqliteQueryResult, SqliteRow>;

/// Puts `BEGIN` before the statement. Leaves out its result, which is the first step.
fn begin_with<'c, 'e, 'q: 'e, E>(
    connection: &'c mut SqliteConnection,
    state: &'c mut State,
    mut query: E,
) -> BoxStream<'e, Result<Step, sqlx::Error>>
where
    'c: 'e,
    E: 'q + Execute<'q, Sqlite>,
{
    if *state == State::Beginning {
        // An earlier first statement failed or was dropped: this one must not run without a transaction.
        return stream::once(future::ready(Err(sqlx::Error::BeginFailed))).boxed();
    }
    let arguments = match query.take_arguments() {
        Ok(arguments) => arguments.unwrap_or_default(),
        Err(error) => return stream::once(future::ready(Err(sqlx::Error::Encode(error)))).boxed(),
    };
    let is_persistent = query.persistent();
    let sql = [BEGIN_SQLITE, query.sql().as_str()].concat();
    *state = State::Beginning;
    let both = sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(is_persistent);
    let steps = connection.fetch_many(both).try_filter_map(move |step| {
        let is_begin = *state == State::Beginning;
        *state = State::Open;
        future::ready(Ok((!is_begin).then_some(step)))
    });
    steps.boxed()
}

impl<'c> Executor<'c> for SqliteExecutor<'c> {
    type Database = Sqlite;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Step, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Sqlite>,
    {
        match self.begins {
            Some(state) => begin_with(self.connection, state, query),
            None => self.connection.fetch_many(query),
        }
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<SqliteRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Sqlite>,
    {
        let Some(state) = self.begins else { return self.connection.fetch_optional(query) };
        let mut steps = begin_with(self.connection, state, query);
        Box::pin(async move {
            while let Some(step) = steps.try_next().await? {
                if let Either::Right(row) = step {
                    return Ok(Some(row));
                }
            }
            Ok(None)
        })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [SqliteTypeInfo],
    ) -> BoxFuture<'e, Result<SqliteStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        self.connection.prepare_with(sql, parameters)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::pool::Pool;

    /// A writer over one file, like that of [`crate::Db`].
    struct Writer {
        pool: Pool<Sqlite>,
        write_permit: Arc<Semaphore>,
    }

    impl Writer {
        fn open(path: &Path) -> Self {
            let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
            let options = options.busy_timeout(Duration::from_millis(20));
            let pool = SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options);
            Self { pool: Pool::new(pool), write_permit: Arc::new(Semaphore::new(1)) }
        }

        async fn begin(&self) -> Transaction<Sqlite> {
            let write_permit = self.write_permit.clone().acquire_owned().await.unwrap();
            Transaction::new(self.pool.acquire().await.unwrap(), write_permit)
        }

        async fn count(&self) -> i64 {
            let mut tx = self.begin().await;
            let count = sqlx::query_scalar("SELECT count(*) FROM n").fetch_one(tx.statement()).await.unwrap();
            tx.commit().await.unwrap();
            count
        }
    }

    async fn run(tx: &mut Transaction<Sqlite>, sql: &'static str) -> Result<u64, sqlx::Error> {
        sqlx::query(sql).execute(tx.statement()).await.map(|done| done.rows_affected())
    }

    /// A file with an empty table.
    async fn writer() -> (tempfile::TempDir, Writer) {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::open(&dir.path().join("test.db"));
        let mut tx = writer.begin().await;
        run(&mut tx, "CREATE TABLE n (n INTEGER NOT NULL)").await.unwrap();
        tx.commit().await.unwrap();
        (dir, writer)
    }

    const THREE: &str = "INSERT INTO n VALUES (1), (2), (3)";

    #[tokio::test]
    async fn the_first_statement_returns_only_its_own_rows() {
        let (_dir, writer) = writer().await;
        let mut tx = writer.begin().await;
        assert_eq!(run(&mut tx, THREE).await.unwrap(), 3);
        tx.commit().await.unwrap();
        let mut tx = writer.begin().await;
        assert_eq!(
            run(&mut tx, "UPDATE n SET n = 5 WHERE n > 1").await.unwrap(),
            2,
            "not those of the last transaction"
        );
        assert_eq!(run(&mut tx, "DELETE FROM n WHERE n = 1").await.unwrap(), 1);
        tx.commit().await.unwrap();
        let mut tx = writer.begin().await;
        let bound = sqlx::query_scalar("INSERT INTO n VALUES ($1 + $2) RETURNING n").bind(3).bind(4);
        let seven: i64 = bound.fetch_one(tx.statement()).await.unwrap();
        assert_eq!(seven, 7);
        let none = sqlx::query("SELECT n FROM n WHERE n = $1").bind(9).fetch_optional(tx.statement()).await.unwrap();
        assert!(none.is_none());
        tx.commit().await.unwrap();
        assert_eq!(writer.count().await, 3);
    }

    #[tokio::test]
    async fn a_dropped_transaction_is_rolled_back_before_the_next_one() {
        let (_dir, writer) = writer().await;
        let mut tx = writer.begin().await;
        run(&mut tx, THREE).await.unwrap();
        drop(tx);
        assert_eq!(writer.count().await, 0);
        let mut tx = writer.begin().await;
        run(&mut tx, THREE).await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!(writer.count().await, 0);
        // Dropped while its first statement runs, which takes longer than this thread could be interrupted.
        const SLOW: &str = "
            WITH RECURSIVE row(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM row WHERE n < 300000)
            INSERT INTO n SELECT n FROM row";
        let mut tx = writer.begin().await;
        let mut insert = Box::pin(async move { run(&mut tx, SLOW).await });
        assert!(futures::poll!(insert.as_mut()).is_pending());
        drop(insert);
        assert_eq!(writer.count().await, 0);
    }

    #[tokio::test]
    async fn without_a_statement_nothing_is_begun() {
        let (dir, writer) = writer().await;
        let idle = writer.begin().await;
        let other = Writer::open(&dir.path().join("test.db"));
        let mut tx = other.begin().await;
        run(&mut tx, THREE).await.unwrap();
        tx.commit().await.unwrap();
        idle.commit().await.unwrap();
        assert_eq!(writer.count().await, 3);
    }

    #[tokio::test]
    async fn nothing_runs_after_a_begin_that_failed() {
        let (dir, writer) = writer().await;
        let other = Writer::open(&dir.path().join("test.db"));
        let mut holder = other.begin().await;
        run(&mut holder, THREE).await.unwrap();
        let mut tx = writer.begin().await;
        assert!(run(&mut tx, THREE).await.is_err(), "the file is locked");
        holder.commit().await.unwrap();
        assert!(matches!(run(&mut tx, THREE).await, Err(sqlx::Error::BeginFailed)), "not without a transaction");
        assert!(matches!(tx.commit().await, Err(sqlx::Error::BeginFailed)));
        assert_eq!(writer.count().await, 3);
    }

    #[tokio::test]
    async fn a_statement_that_fails_leaves_the_transaction_open() {
        let (_dir, writer) = writer().await;
        let mut tx = writer.begin().await;
        assert!(run(&mut tx, "INSERT INTO n VALUES (NULL)").await.is_err());
        assert_eq!(run(&mut tx, THREE).await.unwrap(), 3);
        drop(tx);
        assert_eq!(writer.count().await, 0);
    }
}
