//! A store for one test, on either engine, with fixtures.
//!
//! A test is a function that takes a [`TestStore`]. List it in [`on_both!`] at the top of its file to create two tests,
//! `…::sqlite` and `…::postgres`. The clock is manual, and the notifier records notifications.

#![allow(dead_code, reason = "each test uses only a part")]

use std::ops::Deref;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::clock::Clock;
use crier_base::secrets::{Cipher, SecretKey};
use crier_config::{self as config, MediaConfig};
use crier_domain::job::{JobNotification, JobNotifier};
use crier_media::{Library, Storage};
use crier_store::{Conn, Db, Result, Store, Tx};
use secrecy::{ExposeSecret, SecretString};
use tempfile::TempDir;

use super::client::until_soon;
use super::databases::{self, TestDatabase};
use super::leftovers;
use super::s3::S3Server;
use super::servers;

mod fixtures;
mod rows;

pub use fixtures::{new_account, new_post, publish_to_sandbox};

/// Creates two tests for each function that takes a [`TestStore`]: one on SQLite, one on Postgres. After `start =>`, the
/// functions take what `start` returns for the store.
macro_rules! on_both {
    ($($tests:tt)+) => { $crate::support::store::engine_tests!([] $($tests)+); };
}
pub(crate) use on_both;

/// Like `on_both`, for functions whose subject is not the database (a platform's protocol, a page, a format): the tests
/// on Postgres run with `CRIER_TEST_FULL=1`.
macro_rules! on_one {
    ($($tests:tt)+) => {
        $crate::support::store::engine_tests!(
            [#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]] $($tests)+
        );
    };
}
pub(crate) use on_one;

/// The tests of `on_both` and `on_one`. Those on Postgres have additional attributes.
macro_rules! engine_tests {
    ($postgres:tt $type:ident::$start:ident => $($name:ident),+ $(,)?) => {$(
        $crate::support::store::test_on_engines!(
            CurrentThread $postgres $name |s| super::$name(super::$type::$start(s).await).await
        );
    )+};
    ($postgres:tt $start:ident => $($name:ident),+ $(,)?) => {$(
        $crate::support::store::test_on_engines!(
            CurrentThread $postgres $name |s| super::$name(super::$start(s).await).await
        );
    )+};
    ($postgres:tt $($name:ident),+ $(,)?) => {$(
        $crate::support::store::test_on_engines!(CurrentThread $postgres $name |s| super::$name(s).await);
    )+};
}
pub(crate) use engine_tests;

/// Creates the tests `sqlite` and `postgres` in a module. They run this code with a [`TestStore`] on this
/// [`TestRuntime`]. The code is compiled once for both.
macro_rules! test_on_engines {
    ($runtime:ident [$($postgres:tt)*] $name:ident |$s:ident| $run:expr) => {
        mod $name {
            fn run($s: $crate::support::store::TestStore) -> $crate::support::store::BoxedTest {
                Box::pin(async move { $run })
            }

            #[test]
            fn sqlite() {
                $crate::support::store::run_on_sqlite($crate::support::store::TestRuntime::$runtime, run);
            }

            $($postgres)*
            #[test]
            fn postgres() {
                $crate::support::store::run_on_postgres($crate::support::store::TestRuntime::$runtime, run);
            }
        }
    };
}
pub(crate) use test_on_engines;

/// Creates four tests for each function: both engines, each with files in a directory and in a bucket.
macro_rules! on_both_storages {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            $crate::support::store::test_on_engines!(
                CurrentThread [] directory |s| super::super::$name(s).await
            );
            $crate::support::store::test_on_engines!(
                CurrentThread [] s3 |s| super::super::$name(s.on_s3().await).await
            );
        }
    )+};
}
pub(crate) use on_both_storages;

/// The start time of every test: a whole second, and not the first of a month.
pub fn start_time() -> DateTime<Utc> {
    DateTime::from_timestamp(1_781_000_000, 0).expect("a time")
}

/// The time limit of a test, ten times the duration of the longest test at full size.
const TEST_LIMIT: Duration = Duration::from_mins(15);

/// A started test.
pub type BoxedTest = Pin<Box<dyn Future<Output = ()>>>;

/// The runtime of a test, as of `#[tokio::test]`.
#[derive(Clone, Copy)]
pub enum TestRuntime {
    CurrentThread,
    TwoThreads,
}

/// Runs a test with a store on SQLite.
pub fn run_on_sqlite(runtime: TestRuntime, test: fn(TestStore) -> BoxedTest) {
    run(runtime, Box::pin(async move { test(TestStore::sqlite().await).await }));
}

/// Runs a test with a store on Postgres.
pub fn run_on_postgres(runtime: TestRuntime, test: fn(TestStore) -> BoxedTest) {
    run(runtime, Box::pin(async move { test(TestStore::postgres().await).await }));
}

fn run(runtime: TestRuntime, test: BoxedTest) {
    let mut builder = match runtime {
        TestRuntime::CurrentThread => tokio::runtime::Builder::new_current_thread(),
        TestRuntime::TwoThreads => tokio::runtime::Builder::new_multi_thread(),
    };
    if let TestRuntime::TwoThreads = runtime {
        builder.worker_threads(2);
    }
    builder.enable_all().build().expect("a runtime").block_on(in_time(test));
}

/// Runs a test, and fails it if it does not end within the time limit.
async fn in_time(test: BoxedTest) {
    assert!(tokio::time::timeout(TEST_LIMIT, test).await.is_ok(), "the test does not end within {TEST_LIMIT:?}");
}

/// A notifier that records notifications.
#[derive(Debug, Default)]
pub struct RecordingNotifier(Mutex<Vec<JobNotification>>);

impl JobNotifier for RecordingNotifier {
    fn notify(&self, notifications: &[JobNotification]) {
        self.0.lock().expect("no test panics while it notifies").extend_from_slice(notifications);
    }
}

impl RecordingNotifier {
    /// Returns the ids notified since the last call, in order.
    pub fn take(&self) -> Vec<i64> {
        self.0.lock().expect("no test panics while it notifies").drain(..).map(|notification| notification.id).collect()
    }
}

/// The database of a test, which is removed or released when this value is dropped.
enum OwnedDatabase {
    Sqlite(TempDir),
    Postgres(TestDatabase),
}

/// A store in a new database.
pub struct TestStore {
    pub store: Store,
    pub clock: Clock,
    pub notifier: Arc<RecordingNotifier>,
    database: OwnedDatabase,
    files: TempDir,
    bucket: Option<S3Server>,
    /// Whether faulty jobs fail the test when it ends (`leftovers.rs`).
    checks_jobs: AtomicBool,
}

impl Drop for TestStore {
    fn drop(&mut self) {
        if !self.checks_jobs.load(Ordering::Relaxed) || std::thread::panicking() {
            return;
        }
        let faults = leftovers::faults(&self.place());
        assert!(faults.is_empty(), "jobs went wrong, and the test does not say so with `leaves_jobs()`: {faults}");
    }
}

impl Deref for TestStore {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}

/// A workspace with one user, who owns one brand.
#[derive(Debug, Clone, Copy)]
pub struct World {
    pub workspace: i64,
    pub user: i64,
    pub brand: i64,
}

/// The cipher of all tests.
pub fn cipher() -> Cipher {
    Cipher::new(&[SecretKey::new(1, [7; 32])]).expect("a cipher")
}

impl TestStore {
    pub async fn sqlite() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("crier.db");
        std::fs::write(&path, servers::sqlite().await).expect("a copy of the schema");
        Self::over(Db::sqlite(&path).await.expect("a file"), OwnedDatabase::Sqlite(dir))
    }

    pub async fn postgres() -> Self {
        let database = databases::postgres().await;
        let db = Db::postgres(&database.url, 12).expect("a URL");
        Self::over(db, OwnedDatabase::Postgres(database))
    }

    fn over(db: Db, database: OwnedDatabase) -> Self {
        let (clock, notifier) = (Clock::manual(start_time()), Arc::<RecordingNotifier>::default());
        let files = tempfile::tempdir().expect("a directory");
        Self {
            store: Store::new(db, clock.clone(), cipher(), notifier.clone()),
            clock,
            notifier,
            database,
            files,
            bucket: None,
            checks_jobs: AtomicBool::new(false),
        }
    }

    /// Fails the test if there are faulty jobs when it ends (`leftovers.rs`). For stores with a worker.
    pub fn check_jobs(&self) {
        self.checks_jobs.store(true, Ordering::Relaxed);
    }

    /// Allows the test to end with jobs that are running, dead, stranded, or failed by a panic or an internal error.
    pub fn leaves_jobs(&self) {
        self.checks_jobs.store(false, Ordering::Relaxed);
    }

    /// Stores files in an S3-compatible bucket instead of a directory.
    pub async fn on_s3(mut self) -> Self {
        self.bucket = Some(S3Server::start(self.files.path()).await);
        self
    }

    /// Returns the bucket of [`TestStore::on_s3`].
    pub fn bucket(&self) -> Option<&S3Server> {
        self.bucket.as_ref()
    }

    /// Makes the storage unavailable, like an unmounted disk or an unreachable bucket, or available again.
    pub fn set_storage_unavailable(&self, unavailable: bool) {
        if let Some(bucket) = &self.bucket {
            return bucket.set_unavailable(unavailable);
        }
        let (here, there) = (self.files.path().join("media"), self.files.path().join("away"));
        let (from, to) = if unavailable { (here, there) } else { (there, here) };
        std::fs::rename(from, to).expect("the folder is moved");
    }

    /// Returns the media library, served under this URL.
    pub fn library(&self, public_url: &str) -> Library {
        let directory = || config::StorageConfig::Directory(self.files.path().to_owned());
        let storage =
            Storage::open(&self.bucket.as_ref().map_or_else(directory, S3Server::storage)).expect("a storage");
        Library::new(storage, &MediaConfig::default(), public_url)
    }

    /// Returns the directory of the library's files.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// Returns the sorted names of all files in the storage, including partially written ones.
    pub fn stored_files(&self) -> Vec<String> {
        let (mut names, mut folders) = (Vec::new(), vec![self.files.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let (path, name) = entry.map(|e| (e.path(), e.file_name())).expect("an entry");
                match name.into_string().expect("a name") {
                    _ if path.is_dir() => folders.push(path),
                    // Metadata of the bucket.
                    name if name.starts_with('.') => {}
                    name => names.push(name),
                }
            }
        }
        names.sort();
        names
    }

    /// Opens the database like another process, with its own connections, a notifier that nothing reads, and the same
    /// clock.
    pub async fn open_second_store(&self) -> Store {
        let db = match &self.database {
            OwnedDatabase::Sqlite(dir) => Db::sqlite(&dir.path().join("crier.db")).await.expect("a file"),
            OwnedDatabase::Postgres(database) => Db::postgres(&database.url, 12).expect("a URL"),
        };
        Store::new(db, self.clock.clone(), cipher(), Arc::<RecordingNotifier>::default())
    }

    /// Like `open_second_store`, with connections on another runtime.
    pub async fn open_second_store_on(&self, runtime: &tokio::runtime::Runtime) -> Store {
        let (place, postgres, clock) = (self.place(), self.is_postgres(), self.clock.clone());
        let open = async move {
            let db = match postgres {
                true => Db::postgres(&place, 12).expect("a URL"),
                false => Db::sqlite(place.as_ref()).await.expect("a file"),
            };
            Store::new(db, clock, cipher(), Arc::<RecordingNotifier>::default())
        };
        runtime.spawn(open).await.expect("a store")
    }

    /// Returns the file path or URL of the database.
    pub fn place(&self) -> String {
        match &self.database {
            OwnedDatabase::Sqlite(dir) => dir.path().join("crier.db").display().to_string(),
            OwnedDatabase::Postgres(database) => database.url.clone(),
        }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.database, OwnedDatabase::Postgres(_))
    }

    pub fn later(&self, seconds: i64) -> DateTime<Utc> {
        self.clock.now() + TimeDelta::seconds(seconds)
    }

    pub fn advance(&self, seconds: i64) {
        self.clock.advance(TimeDelta::seconds(seconds));
    }

    /// Runs a unit of work and commits it.
    pub async fn write<T>(&self, work: impl AsyncFnOnce(&mut Tx) -> Result<T>) -> T {
        self.try_write(work).await.expect("the work succeeds")
    }

    /// Like `write`, but returns errors.
    pub async fn try_write<T>(&self, work: impl AsyncFnOnce(&mut Tx) -> Result<T>) -> Result<T> {
        let mut tx = self.store.begin().await.expect("a transaction");
        let out = work(&mut tx).await?;
        tx.commit().await?;
        Ok(out)
    }

    /// Runs a unit of work and rolls it back.
    pub async fn discard<T>(&self, work: impl AsyncFnOnce(&mut Tx) -> Result<T>) -> T {
        let mut tx = self.store.begin().await.expect("a transaction");
        let out = work(&mut tx).await.expect("the work succeeds");
        tx.rollback().await.expect("a rollback");
        out
    }

    pub async fn conn(&self) -> Conn {
        self.store.read().await.expect("a connection")
    }

    /// Executes a SQL statement.
    pub async fn sql(&self, sql: impl Into<String>) {
        let sql = sqlx::AssertSqlSafe(sql.into());
        match self.store.db() {
            Db::Pg(pool) => {
                sqlx::raw_sql(sql).execute(&mut *pool.acquire().await.expect("a connection")).await.map(drop)
            }
            Db::Sqlite { writer, .. } => {
                sqlx::raw_sql(sql).execute(&mut *writer.acquire().await.expect("a connection")).await.map(drop)
            }
        }
        .expect("the test's statement runs");
    }

    /// Returns the single number of a query.
    pub async fn number(&self, sql: impl Into<String>) -> i64 {
        self.value(sql).await
    }

    /// Returns the single value of a query.
    pub async fn value<T>(&self, sql: impl Into<String>) -> T
    where
        T: Send + Unpin,
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
        T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        let sql = sqlx::AssertSqlSafe(sql.into());
        match self.store.db() {
            Db::Pg(pool) => sqlx::query_scalar(sql).fetch_one(&mut *pool.acquire().await.expect("a connection")).await,
            Db::Sqlite { writer, .. } => {
                sqlx::query_scalar(sql).fetch_one(&mut *writer.acquire().await.expect("a connection")).await
            }
        }
        .expect("the test's query returns a value")
    }

    /// Waits until `count` statements wait for locks of other transactions. Only for Postgres: on SQLite, a writer
    /// waits before it sends a statement.
    pub async fn until_blocked(&self, count: i64) {
        const BLOCKED: &str = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        until_soon("statements wait for locks", || async { (self.count_rows(BLOCKED).await >= count).then_some(()) })
            .await;
    }
}

/// Locks a table exclusively until the end of the transaction. Only for Postgres: on SQLite, every writer locks the
/// database.
pub async fn lock_table(tx: &mut Tx, table: &str) {
    let sql = sqlx::AssertSqlSafe(format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"));
    let crier_store::db::Engine::Pg(conn) = tx.engine() else { panic!("this is for Postgres") };
    sqlx::query(sql).execute(conn).await.expect("a lock");
}

/// Runs `work` `times` times concurrently, each in its own task, and returns the results.
pub async fn run_concurrently<T, F>(times: usize, work: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    // The first panic ends the test, because other tasks may wait for the failed one.
    let tasks = (0..times).map(|i| tokio::spawn(work(i)));
    futures::future::try_join_all(tasks).await.expect("no task panics")
}

/// Returns the plaintext, for comparisons.
pub fn expose(secret: &SecretString) -> &str {
    secret.expose_secret()
}
