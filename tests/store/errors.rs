//! Errors: which are retryable, and which are bugs.

use std::time::Duration;

use crier_store::db::Engine;
use crier_store::{Db, Store, StoreError, users};
use sqlx::Connection;

use crate::support::store::{TestStore, on_both};

on_both![
    unique_violations_are_recognised,
    program_errors_are_not_reported_as_unavailable,
    permanent_data_errors_are_recognised
];

async fn unique_violations_are_recognised(s: TestStore) {
    let w = s.create_world().await;
    let duplicate = s.try_write(async |tx| users::create(tx, w.workspace, "ann@example.com", "B").await).await;
    let error = duplicate.unwrap_err();
    assert!(error.is_unique_violation() && !error.is_unavailable() && !error.is_serialization());
    // The same address twice, concurrently: one insert waits for the other, then fails.
    let mut created = crate::support::store::run_concurrently(2, |_| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let created = users::create(&mut tx, w.workspace, "bob@example.com", "B").await;
            tokio::task::yield_now().await;
            match created {
                Ok(_) => tx.commit().await,
                Err(error) => Err(error),
            }
        }
    })
    .await;
    created.sort_by_key(Result::is_err);
    assert!(created[0].is_ok());
    assert!(created[1].as_ref().unwrap_err().is_unique_violation());
}

async fn program_errors_are_not_reported_as_unavailable(s: TestStore) {
    let missing = s.try_write(async |tx| users::create(tx, 999, "x@example.com", "X").await).await.unwrap_err();
    assert!(!missing.is_unavailable() && !missing.is_unique_violation() && !missing.is_serialization(), "{missing}");
    s.sql("ALTER TABLE users RENAME COLUMN name TO called").await;
    let w = s.workspace().await;
    let unknown = s.try_write(async |tx| users::create(tx, w, "x@example.com", "X").await).await.unwrap_err();
    assert!(!unknown.is_unavailable() && !unknown.is_unique_violation() && !unknown.is_serialization(), "{unknown}");
    assert!(!StoreError::Decode("x".to_owned()).is_unavailable());
}

async fn permanent_data_errors_are_recognised(s: TestStore) {
    let w = s.create_world().await;
    let try_sql = async |sql: String| -> StoreError {
        let sql = sqlx::AssertSqlSafe(sql);
        let result = match s.db() {
            Db::Pg(pool) => {
                sqlx::raw_sql(sql).execute(&mut *pool.acquire().await.expect("a connection")).await.map(drop)
            }
            Db::Sqlite { writer, .. } => {
                sqlx::raw_sql(sql).execute(&mut *writer.acquire().await.expect("a connection")).await.map(drop)
            }
        };
        result.expect_err("it is rejected").into()
    };
    let value_errors = [
        // A column that must not be null, and a column that accepts only certain values.
        format!("UPDATE brands SET name = NULL WHERE id = {}", w.brand),
        "INSERT INTO paused_lanes (lane, paused_until) VALUES ('brand:1', NULL)".to_owned(),
        format!(
            "
            INSERT INTO brand_members (brand_id, user_id, role, created_at)
            VALUES ({}, {}, 'tsar', '2026-01-01T00:00:00Z')",
            w.brand, w.user
        ),
    ];
    for sql in value_errors {
        let error = try_sql(sql).await;
        assert!(error.is_rejected() && !error.is_transient(), "{error}");
    }
    let row_error = s.try_write(async |tx| users::create(tx, 999, "x@example.com", "X").await).await.unwrap_err();
    let duplicate =
        s.try_write(async |tx| users::create(tx, w.workspace, "ann@example.com", "B").await).await.unwrap_err();
    let unknown = try_sql("UPDATE brands SET nothing = 1".to_owned()).await;
    for error in [row_error, duplicate, unknown, StoreError::Decode("x".to_owned())] {
        assert!(
            !error.is_rejected() && !error.is_transient(),
            "another row, or another version, may be there later: {error}"
        );
    }
    let with_nul = s.try_write(async |tx| users::create(tx, w.workspace, "nul@example.com", "A\0B").await).await;
    match (s.is_postgres(), with_nul) {
        (true, Err(error)) => assert!(error.is_rejected() && !error.is_transient(), "{error}"),
        (false, created) => drop(created.expect("SQLite takes it")),
        (true, Ok(_)) => panic!("Postgres takes no NUL"),
    }
    if s.is_postgres() {
        for value in ["'1e400'::float8", "repeat('x', 10000000)::varchar::inet", "'\"\\u0000\"'::jsonb"] {
            let error = try_sql(format!("UPDATE brands SET name = ({value})::text")).await;
            assert!(error.is_rejected(), "{value}: {error}");
        }
        // The value is longer than the index accepts.
        let name = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 20000) n)";
        let error = try_sql(format!("UPDATE users SET email = {name}")).await;
        assert!(error.is_rejected(), "{error}");
    }
}

#[tokio::test]
async fn an_unreachable_postgres_is_unavailable() {
    // A port at which no server listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let db = Db::postgres(&format!("postgres://nobody@127.0.0.1:{port}/none"), 2).unwrap();
    let (read, transaction, migrated) = tokio::join!(db.ping(), db.begin(), db.migrate());
    for error in [read.unwrap_err(), transaction.unwrap_err(), migrated.unwrap_err()] {
        assert!(error.is_unavailable(), "{error:?}");
        assert!(!error.is_unique_violation() && !error.is_serialization());
    }
}

/// As when the server restarts, a connection breaks in the middle of a transaction, and the next connection works.
#[tokio::test]
async fn a_terminated_connection_is_unavailable_and_replaced() {
    let s = TestStore::postgres().await;
    let w = s.workspace().await;
    let mut tx = s.begin().await.unwrap();
    let mut killer = sqlx::PgConnection::connect(&s.place()).await.unwrap();
    let kill = "
        SELECT count(pg_terminate_backend(pid, 5000))
        FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let _: i64 = sqlx::query_scalar(kill).fetch_one(&mut killer).await.unwrap();
    let error = users::set_plan(&mut tx, w, "free").await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    drop(tx);
    // Each other connection of the pool may fail once; then the pool works.
    for _ in 0..12 {
        match s.db().ping().await {
            Ok(()) => break,
            Err(error) => assert!(error.is_unavailable(), "{error:?}"),
        }
    }
    s.db().ping().await.unwrap();
}

#[tokio::test]
async fn an_exhausted_pool_is_unavailable() {
    let s = TestStore::postgres().await;
    let db = Db::postgres(&s.place(), 1).unwrap();
    let held = db.begin().await.unwrap();
    let error = db.read().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    drop(held);
    db.ping().await.unwrap();
    db.close().await;
    let error = db.ping().await.unwrap_err();
    assert!(error.is_unavailable() && error.is_closed());
}

/// Two transactions that each need the other's rows: one is aborted with a deadlock error, the other continues.
#[tokio::test]
async fn deadlocks_are_recognised() {
    let s = TestStore::postgres().await;
    let (one, two) = (s.workspace().await, s.workspace().await);
    s.sql(
        "ALTER DATABASE CURRENT_DATABASE_NAME SET deadlock_timeout = '50ms'"
            .replace("CURRENT_DATABASE_NAME", s.place().rsplit('/').next().unwrap()),
    )
    .await;
    let quick = s.open_second_store().await;
    let (mut a, mut b) = (quick.begin().await.unwrap(), quick.begin().await.unwrap());
    users::set_plan(&mut a, one, "a").await.unwrap();
    users::set_plan(&mut b, two, "b").await.unwrap();
    let first = async {
        let result = users::set_plan(&mut a, two, "a").await;
        // The rollback releases the row locks of the aborted transaction immediately.
        if result.is_err() {
            a.rollback().await.unwrap()
        } else {
            a.commit().await.unwrap()
        };
        result
    };
    let second = async {
        s.until_blocked(1).await;
        let result = users::set_plan(&mut b, one, "b").await;
        if result.is_err() {
            b.rollback().await.unwrap()
        } else {
            b.commit().await.unwrap()
        };
        result
    };
    let (first, second) = tokio::join!(first, second);
    assert_ne!(first.is_err(), second.is_err(), "{first:?} {second:?}");
    let error = first.err().or(second.err()).unwrap();
    assert!(
        error.is_serialization() && error.is_transient() && !error.is_unavailable() && !error.is_unique_violation(),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_unopenable_file_is_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let error = Db::sqlite(&dir.path().join("nowhere/crier.db")).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
}

#[tokio::test]
async fn two_processes_share_a_sqlite_file() {
    let s = TestStore::sqlite().await;
    let second = s.open_second_store().await;
    let stores: [Store; 2] = [s.store.clone(), second];
    let created = crate::support::store::run_concurrently(20, |n| {
        let store = stores[n % 2].clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            users::create_workspace(&mut tx, "W", "pro").await.unwrap();
            tx.commit().await
        }
    })
    .await;
    assert!(created.iter().all(Result::is_ok), "{created:?}");
    assert_eq!(s.number("SELECT count(*) FROM workspaces").await, 20);
}

/// Invariant: the writers on all connections of the process are served in order. For example, the heartbeat is served
/// while a worker writes without a pause.
#[tokio::test]
async fn writers_of_one_process_are_serialised() {
    let s = TestStore::sqlite().await;
    let heartbeat = s.store.new_connections().await.unwrap();
    let held = s.begin().await.unwrap();
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    let writers = [(0, heartbeat)].into_iter().chain((1..20).map(|n| (n, s.store.clone())));
    for (n, store) in writers {
        let sender = sender.clone();
        tokio::spawn(async move {
            let mut tx = store.begin().await.unwrap();
            users::create_workspace(&mut tx, "W", "pro").await.unwrap();
            sender.send(n).unwrap();
            tx.commit().await.unwrap();
        });
        // Lets this writer enter the queue before the next one.
        tokio::task::yield_now().await;
    }
    held.commit().await.unwrap();
    for expected in 0..20 {
        assert_eq!(order.recv().await, Some(expected));
    }
}

#[tokio::test]
async fn a_statement_on_postgres_ends_after_a_minute() {
    let s = TestStore::postgres().await;
    let mut tx = s.begin().await.unwrap();
    let Engine::Pg(conn) = tx.engine() else { panic!("this is for Postgres") };
    let limit: String = sqlx::query_scalar("SHOW statement_timeout").fetch_one(&mut *conn).await.unwrap();
    assert_eq!(limit, "1min");
    sqlx::query("SET LOCAL statement_timeout = '1ms'").execute(&mut *conn).await.unwrap();
    let error = sqlx::query("SELECT pg_sleep(10)").execute(conn).await.unwrap_err();
    assert!(StoreError::from(error).is_unavailable());
}

/// It must not look as if the database rejected the value: the result of a call would be stored in part only.
#[tokio::test]
async fn a_read_only_postgres_is_unavailable() {
    let s = TestStore::postgres().await;
    let w = s.workspace().await;
    let mut tx = s.begin().await.unwrap();
    let Engine::Pg(conn) = tx.engine() else { panic!("this is for Postgres") };
    sqlx::query("SET TRANSACTION READ ONLY").execute(conn).await.unwrap();
    let error = users::set_plan(&mut tx, w, "free").await.unwrap_err();
    assert!(error.is_unavailable() && error.is_transient() && !error.is_rejected(), "{error:?}");
}

/// The kernel remounts a file system read-only after an error of its disk.
#[tokio::test]
async fn a_read_only_file_is_unavailable() {
    let s = TestStore::sqlite().await;
    let w = s.workspace().await;
    // SQLite returns the same error on this connection as for a file that it cannot write.
    s.sql("PRAGMA query_only = 1").await;
    let error = s.try_write(async |tx| users::set_plan(tx, w, "free").await).await.unwrap_err();
    assert!(error.is_unavailable() && error.is_transient() && !error.is_rejected(), "{error:?}");
}

/// During a fail-over, a new connection may reach a standby, which accepts no write. The pool must not keep it.
#[tokio::test]
async fn a_connection_to_a_standby_is_rejected() {
    const SHADOW: &str = "
        CREATE SCHEMA standby;
        CREATE FUNCTION standby.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'";
    // New connections find this function before that of the system.
    let set_path =
        |path: &str| format!("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {path}', current_database()); END $$");
    let s = TestStore::postgres().await;
    s.sql(SHADOW).await;
    s.sql(set_path("SET search_path = standby, pg_catalog, public")).await;
    let db = s.db().new_connections().await.unwrap();
    let error = db.probe().await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("the server is a standby"), "{error:?}");
    assert!(tokio::time::timeout(Duration::from_secs(1), db.read()).await.is_err(), "it waits for the primary");
    s.sql(set_path("RESET search_path")).await;
    db.read().await.unwrap();
}
