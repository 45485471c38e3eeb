//! Postgres databases for tests, on the server that `./scripts/test` starts. Each test has its own database, with the
//! schema and without rows.
//!
//! The migrations create the first database, which is the template that all others are copied from. When a test ends,
//! its copy is emptied and reused by another test, which is much faster than a new copy. The copy is first renamed, so
//! that tasks that the earlier test left running cannot connect to it. It is dropped instead if the test changed its
//! schema or settings, filled it, or had it analyzed (`harness.sql`).

#![allow(dead_code, reason = "each test uses only a part")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{LazyLock, Mutex, PoisonError};

use crier_domain::job::JobState;
use crier_domain::post::{AttemptOutcome, PostStatus, StoredScheduleType, TargetStatus};
use crier_domain::webhook::DeliveryStatus;
use crier_store::Db;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::servers::variable;

/// Creates the schema `harness` of the template, with the function `harness.empty()`.
const HARNESS: &str = include_str!("harness.sql");
/// The maximum number of databases that wait to be emptied. A test that ends waits while there are as many.
const MAX_RELEASED: usize = 8;

/// A Postgres database, which is released when this value is dropped.
pub struct TestDatabase {
    pub url: String,
    name: String,
    /// Whether the database is a copy of the template, which another test can reuse.
    is_copy: bool,
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let released = ReleasedDatabase { name: std::mem::take(&mut self.name), is_copy: self.is_copy };
        assert!(CLEANER.send(released).is_ok() || std::thread::panicking(), "the cleaner runs as long as the process");
    }
}

/// Returns a database with the schema and no rows.
pub async fn postgres() -> TestDatabase {
    if let Some(name) = emptied().pop() {
        return TestDatabase { url: with_database(&name), name, is_copy: true };
    }
    let template = format!("schema_{:016x}", schema_hash());
    let mut admin = connect().await;
    // Without a lock, because the template almost always exists.
    if !exists(&mut admin, &template).await {
        make_template(&mut admin, &template, migrate).await;
    }
    copy(&mut admin, &template).await
}

async fn migrate(url: String) {
    let db = Db::postgres(&url, 2).expect("a URL");
    db.migrate().await.expect("a schema");
    db.close().await;
    let mut connection = PgConnection::connect(&url).await.expect("the database of the schema");
    for sql in word_checks() {
        execute(&mut connection, sql).await.expect("a constraint");
    }
    connection.close().await.expect("an orderly end");
}

/// Returns the checks that the schema omits for speed (`migrations/README.md`). With them, a statement that writes an
/// unknown word fails.
fn word_checks() -> [String; 6] {
    fn check<T: std::fmt::Display>(table: &str, column: &str, words: &[T]) -> String {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        format!("ALTER TABLE {table} ADD CHECK ({column} IN ({}))", words.join(", "))
    }
    [
        check("jobs", "state", JobState::ALL),
        check("posts", "status", PostStatus::ALL),
        check("posts", "schedule_type", StoredScheduleType::ALL),
        check("post_targets", "status", TargetStatus::ALL),
        check("target_attempts", "outcome", AttemptOutcome::ALL),
        check("webhook_deliveries", "status", DeliveryStatus::ALL),
    ]
}

/// Returns the names of the databases that are ready for another test.
fn emptied() -> std::sync::MutexGuard<'static, Vec<String>> {
    static EMPTIED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    EMPTIED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A database whose test has ended.
struct ReleasedDatabase {
    name: String,
    is_copy: bool,
}

/// Empties or drops released databases. It has its own thread, because the runtime of a test ends with the test.
static CLEANER: LazyLock<SyncSender<ReleasedDatabase>> = LazyLock::new(|| {
    let (sender, receiver) = sync_channel(MAX_RELEASED);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(clean_all(&receiver)).expect("the Postgres of the tests responds");
    });
    sender
});

async fn clean_all(receiver: &Receiver<ReleasedDatabase>) -> Result<(), sqlx::Error> {
    let mut admin = connect().await;
    drop_databases_of_ended_processes(&mut admin).await?;
    for released in receiver {
        if released.is_copy
            && let Some(name) = empty(&mut admin, &released.name).await?
        {
            emptied().push(name);
        } else {
            execute(&mut admin, format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", released.name)).await?;
        }
    }
    Ok(())
}

/// Renames and empties a copy, and returns its new name. Returns `None` if the copy was changed too much; it is then
/// dropped.
async fn empty(admin: &mut PgConnection, name: &str) -> Result<Option<String>, sqlx::Error> {
    let new = new_name();
    // Tasks that the test left running may reconnect before the database is renamed.
    loop {
        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = ";
        execute(admin, format!("{end}'{name}'")).await?;
        match execute(admin, format!("ALTER DATABASE {name} RENAME TO {new}")).await {
            Ok(()) => break,
            Err(error) if is_in_use(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let mut connection = PgConnection::connect(&with_database(&new)).await?;
    let is_emptied: bool = sqlx::query_scalar("SELECT harness.empty()").fetch_one(&mut connection).await?;
    connection.close().await?;
    if !is_emptied {
        execute(admin, format!("DROP DATABASE {new} WITH (FORCE)")).await?;
    }
    Ok(is_emptied.then_some(new))
}

fn is_in_use(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55006")
}

/// Drops the databases that ended processes left behind, because nothing cleans up when a process ends.
async fn drop_databases_of_ended_processes(admin: &mut PgConnection) -> Result<(), sqlx::Error> {
    let all = "SELECT datname::text FROM pg_database WHERE datname LIKE 'test\\_%\\_%'";
    let all: Vec<String> = sqlx::query_scalar(all).fetch_all(&mut *admin).await?;
    for name in all {
        let process = name.split('_').nth(1).unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            execute(admin, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        }
    }
    Ok(())
}

async fn exists(admin: &mut PgConnection, database: &str) -> bool {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)")
        .bind(database)
        .fetch_one(admin)
        .await
        .expect("a list of databases")
}

/// Returns a new name, which contains the id of this process.
fn new_name() -> String {
    format!("test_{}_{:016x}", std::process::id(), RandomState::new().build_hasher().finish())
}

async fn copy(admin: &mut PgConnection, template: &str) -> TestDatabase {
    let name = new_name();
    execute(admin, format!("CREATE DATABASE {name} TEMPLATE {template}")).await.expect("a copy of the schema");
    TestDatabase { url: with_database(&name), name, is_copy: true }
}

async fn make_template<F>(admin: &mut PgConnection, template: &str, migrate: impl FnOnce(String) -> F)
where
    F: Future<Output = ()>,
{
    // Other tests, in this process or another, wait here for the first one. The lock is released with the connection.
    let mut lock = connect().await;
    execute(&mut lock, "SELECT pg_advisory_lock(4021)".to_owned()).await.expect("a lock");
    if !exists(admin, template).await {
        let draft = format!("{template}_draft");
        for sql in [format!("DROP DATABASE IF EXISTS {draft} WITH (FORCE)"), format!("CREATE DATABASE {draft}")] {
            execute(admin, sql).await.expect("a database for the schema");
        }
        migrate(with_database(&draft)).await;
        for sql in [HARNESS, "INSERT INTO harness.pristine SELECT harness.catalog()"] {
            let mut connection =
                PgConnection::connect(&with_database(&draft)).await.expect("the database of the schema");
            execute(&mut connection, sql.to_owned()).await.expect("the harness");
            connection.close().await.expect("an orderly end");
        }
        for sql in [
            // Renaming and copying require that there are no connections, and a pool may still be closing.
            format!("ALTER DATABASE {draft} ALLOW_CONNECTIONS false"),
            format!("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{draft}'"),
            format!("ALTER DATABASE {draft} RENAME TO {template}"),
        ] {
            execute(admin, sql).await.expect("the schema can be kept as a template");
        }
    }
}

async fn connect() -> PgConnection {
    PgConnection::connect(&variable("CRIER_TEST_PG_URL")).await.expect("the Postgres of the tests responds")
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    // Contains only names that were generated here.
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

/// Returns the URL of another database on the same server.
fn with_database(name: &str) -> String {
    let url = variable("CRIER_TEST_PG_URL");
    let (address, query) = url.split_once('?').map_or((url.as_str(), None), |(address, query)| (address, Some(query)));
    let (server, _) = address.rsplit_once('/').expect("CRIER_TEST_PG_URL ends with /database");
    match query {
        Some(query) => format!("{server}/{name}?{query}"),
        None => format!("{server}/{name}"),
    }
}

/// Returns a hash that changes with the migrations, so that a server that outlives a run never provides an old schema.
fn schema_hash() -> u64 {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/postgres");
    let mut files: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(HARNESS.as_bytes());
    word_checks().iter().for_each(|check| hasher.write(check.as_bytes()));
    for file in files {
        hasher.write(file.file_name().unwrap_or_default().as_encoded_bytes());
        hasher.write(&std::fs::read(&file).unwrap_or_default());
    }
    hasher.finish()
}

mod tests {
    use super::*;

    async fn migrate(url: String) {
        let mut connection = PgConnection::connect(&url).await.expect("a new database");
        let schema = "CREATE TABLE kept (id bigint GENERATED ALWAYS AS IDENTITY, word text); \
                      INSERT INTO kept (word) VALUES ('of the schema')";
        execute(&mut connection, schema.to_owned()).await.expect("a table");
    }

    /// Creates a template for this test only. The migrations create that of the other tests.
    async fn make_own_template(template: &str) {
        make_template(&mut connect().await, template, migrate).await;
    }

    async fn words(connection: &mut PgConnection) -> String {
        let all = "SELECT string_agg(id || ' ' || word, ', ' ORDER BY id) FROM kept";
        sqlx::query_scalar(all).fetch_one(connection).await.expect("a table")
    }

    async fn own_copy(admin: &mut PgConnection, template: &str) -> TestDatabase {
        let mut database = copy(admin, template).await;
        database.is_copy = false;
        database
    }

    #[tokio::test]
    async fn each_test_has_a_copy_of_the_schema() {
        let mut admin = connect().await;
        let template = format!("selftest_{:016x}", RandomState::new().build_hasher().finish());
        tokio::join!(make_own_template(&template), make_own_template(&template), make_own_template(&template));
        let (one, two) = (own_copy(&mut admin, &template).await, own_copy(&mut admin, &template).await);
        let mut first = PgConnection::connect(&one.url).await.expect("a database");
        execute(&mut first, "INSERT INTO kept (word) VALUES ('new')".to_owned()).await.expect("a row");
        let mut second = PgConnection::connect(&two.url).await.expect("a database");
        assert_eq!(words(&mut second).await, "1 of the schema");

        // A connection is still open.
        let emptied = empty(&mut admin, &one.name).await.expect("the server responds").expect("it can be used again");
        assert!(!exists(&mut admin, &one.name).await && is_cut(&mut first).await);
        let mut again = PgConnection::connect(&with_database(&emptied)).await.expect("a database");
        assert_eq!(words(&mut again).await, "1 of the schema");
        execute(&mut again, "INSERT INTO kept (word) VALUES ('newer')".to_owned()).await.expect("a row");
        assert_eq!(words(&mut again).await, "1 of the schema, 1 newer");

        for change in [
            "ALTER TABLE kept RENAME TO away; ALTER TABLE away RENAME TO kept".to_owned(),
            "CREATE TABLE another ()".to_owned(),
            "ANALYZE kept".to_owned(),
            "INSERT INTO kept (word) SELECT repeat('x', 1000) FROM generate_series(1, 5000)".to_owned(),
            "ALTER DATABASE OWN_NAME SET work_mem = '8MB'".to_owned(),
        ] {
            let changed = own_copy(&mut admin, &template).await;
            let mut connection = PgConnection::connect(&changed.url).await.expect("a database");
            execute(&mut connection, change.replace("OWN_NAME", &changed.name)).await.expect("a change");
            assert_eq!(empty(&mut admin, &changed.name).await.expect("the server responds"), None, "{change}");
        }
        execute(&mut admin, format!("DROP DATABASE {emptied} WITH (FORCE)")).await.expect("it can go");
        execute(&mut admin, format!("DROP DATABASE {template}")).await.expect("the template can go");
    }

    async fn is_cut(connection: &mut PgConnection) -> bool {
        sqlx::query("SELECT 1").execute(connection).await.is_err()
    }
}
